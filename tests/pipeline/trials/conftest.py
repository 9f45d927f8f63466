"""What several tests of trials need."""

from collections.abc import Iterator
from functools import cache

import pytest

from pipeline.trials import space


@pytest.fixture(autouse=True, scope="module")
def params_are_read_once() -> Iterator[None]:
    """For many sweeps of the same params.yaml, whose reading takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "read_raw", cache(space.read_raw))
        yield
