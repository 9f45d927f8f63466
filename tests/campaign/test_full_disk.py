"""Each stage and command finds the disk full from its n-th write on: exit 5 and one line, old files
untouched, nothing half-written; with space again it ends as if nothing had happened.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaign.interrupted import ROWS, try_part
from tests.conftest import shapes_unchecked


@pytest.fixture(autouse=True, scope="module")
def as_outside_the_tests() -> Iterator[None]:
    with shapes_unchecked():
        yield


@pytest.mark.parametrize(("name", "part"), ROWS)
def test_a_full_disk_at_any_write_loses_nothing(name: str, part: int, record_property: Any):
    record_property("generated", try_part("full", name, part))
