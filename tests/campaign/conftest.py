"""The campaign of crashes, kills and races: a sample of its cases in `make test-full`, all in `make
campaign`.

A file `test_AREA.py` has an area's cases as parameters of its tests, one row a case.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.promises import broken
from tests.pipeline.conftest import stages_without_shape_checks  # noqa: F401 - a fixture

HERE = Path(__file__).parent
# Of the cases of a test, every so many-th belongs to the sample.
SAMPLE = 17
LONGEST_SECONDS = 300.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks: Counter[str] = Counter()
    for item in items:
        if HERE not in item.path.parents or not hasattr(item, "callspec"):
            continue
        test = item.nodeid.partition("[")[0]
        item.add_marker("slow" if ranks[test] % SAMPLE else "full")
        ranks[test] += 1


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Ends a case that hangs."""

    def hangs(*_: Any) -> None:
        broken("hang", f"longer than {LONGEST_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
