"""Fields that a test registers are known to that test only."""

import pytest

from quatrain.envs.vector_field import kinds
from tests.pipeline.fixture_types import Patch


@pytest.fixture(autouse=True)
def _forgotten_afterwards(monkeypatch: Patch) -> None:
    monkeypatch.setattr(kinds, "_functions", {})
