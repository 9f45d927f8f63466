"""Rows of the machine's table."""

from pathlib import Path

import pytest

from benchmarks.harness import NotComparable
from benchmarks.machine import measure
from tests.conftest import ROOT, SMALL


@pytest.mark.full
def test_a_start_is_measured_with_an_empty_and_with_a_full_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(measure.NEARER, "allo", SMALL["allo"])
    row = measure.start_row(ROOT, "allo")
    assert row.before is not None
    assert min(row.before.median, row.ours.median) > 0


def test_a_row_stops_where_a_process_ends_with_another_code(tmp_path: Path) -> None:
    assert measure.check_row(ROOT, 1).goal_reached is not None
    with pytest.raises(NotComparable, match="exit 3 in place of 2"):
        measure.seconds_of(ROOT, str(tmp_path), "-c", "raise SystemExit(3)", code=2)
