"""The campaign of crashes and full disks: a sample of its cases in `make test-full`, all in `make
campaign`.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.conftest import stages_without_shape_checks  # noqa: F401 - a fixture

HERE = Path(__file__).parent
# Of the cases of a test, every so many-th belongs to the sample.
SAMPLE = 13


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks: Counter[str] = Counter()
    for item in items:
        if HERE not in item.path.parents or not hasattr(item, "callspec"):
            continue
        test = item.nodeid.partition("[")[0]
        item.add_marker("slow" if ranks[test] % SAMPLE else "full")
        ranks[test] += 1
