"""The table of simulated comparisons has a line for each noise, with shares of verdicts."""

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import comparison


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with recorded seeds and shares of adastop."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["comparison"])
    monkeypatch.setattr(comparison, "COMPARISONS", 40)
    shares = {"equal": {"better": 0.25, "worse": 0.125, "seeds": 15.5}, "version": "7"}
    shares["better"] = {"better": 0.75, "no difference": 0.25, "seeds": 9}
    stored = {comparison.RECORDED: {"iqn": {"return": [1.0, 3.0]}}}
    stored[comparison.ASKED] = dict.fromkeys(comparison.equal_sides(tmp_path), shares)
    stored[comparison.ASKED]["iqn: return of 2 seeds"] = shares
    for file, content in stored.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    return tmp_path


def test_the_page_has_a_line_for_each_noise(root: Path) -> None:
    page = root / comparison.PAGE
    page.parent.mkdir()
    page.write_text(f"before\n{comparison.BEGIN}\nold\n{comparison.END}\nafter\n")
    comparison.main()
    before, *lines, after = page.read_text().splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| ")}
    assert (before, after) == ("before", "after")
    assert "old" not in lines
    assert rows.keys() == {"noise of the scores", *comparison.equal_sides(root)}
    share = r"\d+\.\d % \(\d+\.\d\)"
    ours = rf"\| {share} \| {share} \| {share} \|"
    assert re.search(rf"{ours} 37.5 % \(15.5\) \| 75.0 % \(9.0\)", rows["iqn: return of 2 seeds"])
