"""What tests of the public API share: small results, without shape checks."""

from collections.abc import Iterator

import pytest

import quatrain
from quatrain.api.results import Result
from tests.conftest import shapes_unchecked, small


@pytest.fixture(autouse=True, scope="module")
def calls_without_shape_checks() -> Iterator[None]:
    """As outside the tests; the checks are for the tests of what the API calls."""
    with shapes_unchecked():
        yield


@pytest.fixture(scope="session")
def allo() -> Result:
    """A trained model; tests do not change it."""
    with shapes_unchecked():
        return quatrain.fit("allo", config=small("allo"), threads=1, progress=False)


@pytest.fixture(scope="session")
def actor_critic() -> Result:
    """A trained torch model; tests do not change it."""
    with shapes_unchecked():
        return quatrain.fit(
            "actor_critic", config=small("actor_critic"), device="cpu", threads=1, progress=False
        )
