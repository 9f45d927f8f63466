"""Short names of what the tests are given."""

from collections.abc import Callable

import pytest

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Failure = Callable[..., str]
"""Of the fixture `failure`."""
