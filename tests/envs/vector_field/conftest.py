"""Fields that a test registers are known to that test only."""

import pytest

from quatrain.envs.vector_field import kinds


@pytest.fixture(autouse=True)
def _forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_functions", {})
