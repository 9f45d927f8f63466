"""`make crash`: which points it tries, and what its table says."""

from pathlib import Path

import pytest

from pipeline.reporting.tables import between_marks
from tests.campaign import crash
from tests.campaign.crash import BEGIN, END, PAGE, Row, spread, stored, table


def test_points_are_spread_over_all_of_them():
    assert spread(10, 1) == list(range(1, 11))
    assert spread(10, 3) == [1, 3, 6, 8]
    assert spread(3, 7, least=6) == [1, 2, 3]
    assert spread(0, 7) == []


def test_a_work_has_one_row_with_both_faults():
    rows = [
        Row("allo", "allo train", fault, 100, 10, n) for fault, n in (("killed", 9), ("full", 8))
    ]
    assert table(rows).splitlines()[2:] == [
        "| allo train | 100 | 10 | 9 | 100 | 10 | 8 |",
        "| all | 100 | 10 | 9 | 100 | 10 | 8 |",
    ]


def test_what_ran_is_stored_and_written_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(crash, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(crash, "RESULTS", tmp_path / "results")
    rows = [Row("allo", "allo train", fault, 3, 2, 2) for fault in ("killed", "full")]
    monkeypatch.setattr(crash, "campaign", lambda *_: iter(rows))
    assert crash.main(["allo"]) == 0
    assert stored() == rows
    assert crash.main(["--page"]) == 0
    assert table(rows) in (tmp_path / "page.md").read_text()
    rows[0] = rows[0]._replace(survived=1)
    assert crash.main(["allo"]) == 1


def test_the_page_has_its_marks():
    assert between_marks(PAGE.read_text(), "new", BEGIN, END, PAGE.name)
