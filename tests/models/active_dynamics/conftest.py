"""What all tests of active_dynamics run under."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Applies to every module of this folder."""
