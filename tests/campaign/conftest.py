"""The campaign of bad inputs and faults: a sample of its cases in `make test-full`, all in `make
campaign`, with a table of what was seen.

A file `test_AREA.py` has an area's cases as parameters of its tests, one row a case. A test that
generates its cases says how many by `record_property("generated", number)`.
"""

import re
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tabulate import tabulate

from tests.campaign.promises import KINDS, broken
from tests.campaign.stages import stay_in_process
from tests.conftest import ROOT
from tests.pipeline.conftest import (  # noqa: F401 - fixtures
    all_stages_of,
    checkout,
    committed,
    folder,
    scored,
    stages_without_shape_checks,
    trained_of,
)
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project, surround

HERE = Path(__file__).parent
# Of the cases of a test, every so many-th belongs to the sample.
SAMPLE = 12
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the cases of each area, and how many broke which promise."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            path, _, _ = report.nodeid.partition("::")
            if "tests/campaign/" not in path:
                continue
            area = counts[Path(path).stem.removeprefix("test_")]
            area["cases"] += 1
            area["generated"] += dict(report.user_properties).get("generated", 0)
            area["as promised" if outcome == "passed" else _kind(report)] += 1
    if not counts:
        return
    head = ("cases", "generated", "as promised", *KINDS, "other")
    rows = [[name, *(count[column] for column in head)] for name, count in sorted(counts.items())]
    rows.append(["all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))])
    terminalreporter.section("campaign")
    terminalreporter.write_line(tabulate(rows, ("area", *head)))


def _kind(report: Any) -> str:
    """Which promise a failed case broke; `other` if it failed in another way."""
    named = re.search(rf"Broken: ({'|'.join(KINDS)}): ", str(report.longrepr))
    return named.group(1) if named else "other"


@pytest.fixture
def params_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that reading params.yaml needs."""
    for name in ("inputs", "presets", "baselines"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def finished(
    all_stages_of: Callable[[str], Project],  # noqa: F811
    tmp_path: Path,
    monkeypatch: Patch,
) -> Callable[[str], Project]:
    """A model's project with all that its stages made, which is the current folder."""

    def copied(model: str) -> Project:
        project = all_stages_of(model).copied(tmp_path / "project")
        surround(monkeypatch, project)
        stay_in_process(monkeypatch)
        return project

    return copied
