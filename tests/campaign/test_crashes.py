"""Each stage and command dies before its n-th operation on the disk, and again sooner, or finds the
disk full from its n-th write on: each file is old or new, and the next life ends as if nothing had
happened.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.interrupted import ROWS, try_part
from tests.conftest import shapes_unchecked


@pytest.fixture(autouse=True, scope="module")
def as_outside_the_tests() -> Iterator[None]:
    with shapes_unchecked():
        yield


@pytest.mark.parametrize(("name", "part"), ROWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_moment_loses_nothing(
    fault: Fault, name: str, part: int, record_property: Any
):
    record_property("generated", try_part(fault, name, part))
