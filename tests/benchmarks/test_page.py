"""docs/benchmarks.md and its pictures out of small results: every number comes from them."""

from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import page, pictures, run
from benchmarks.claims import PROPOSALS, named, read
from benchmarks.harness import Row
from tests.benchmarks.small_results import ALL, PEERS, STEP, keep, measured
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def rendered(folder: Path, rows: dict[str, list[Row]]) -> str:
    return page.render(read(keep(folder, rows)), (), "..")


def line(text: str, *parts: str) -> list[str]:
    """Returns the cells of the one line of a table that has all these parts."""
    lines = [item for item in text.splitlines() if item.startswith("|")]
    (result,) = [item for item in lines if all(part in item for part in parts)]
    return [cell.strip() for cell in result.strip("|").split(" | ")]


def test_a_claim_stands_beside_its_promise_its_numbers_and_its_verdict(tmp_path: Path):
    text = rendered(tmp_path, ALL)
    promised = ["all of it", "2-3x faster training"]
    gains = ["step", "2x", "6x (3..12)", "reproduced"]
    assert line(text, *promised) == [*promised, *gains]
    assert line(text, "one application of the encoder")[2] == "step / in a scan"
    assert line(text, "inference compiled")[-1] == "not measured: run `make bench BENCH=iqn`"
    for document in PROPOSALS.values():
        cells = line(text, f"| {document.title} |")
        assert sum(int(count or 0) for count in cells[2:]) == int(cells[1])
    assert "2 goals of this project: **1 reached, 1 missed**." in text
    missed = text.partition("## Goals")[2].partition("<details>")[0]
    assert line(missed, "| step |")[2:] == ["at least 7x", "6x", "86 %", "a fused kernel gave 1.1x"]
    libraries = text.partition("## Against other")[2].partition("\n## ")[0]
    assert line(libraries, "| draw |")[1] == "cpprb 4x<br>**torchrl, plain 0.5x**"


def test_a_claim_with_several_rows_has_a_line_for_all_and_one_for_each(tmp_path: Path):
    other = STEP._replace(name="a | b <i>", seed_way=measured(0.012), against="one by one")
    alone = STEP._replace(name="alone", before=None)
    text = rendered(tmp_path, {"allo": [STEP, other, alone]})
    assert line(text, "2-3x faster training")[-1] == "**reproduced in 1 of 2 comparisons**"
    each = line(text, r"a \| b &lt;i&gt; (before: one by one)")
    assert each[-3:] == ["1x", "6x (3..12)", "refuted"]
    takes = ["6 ms/step", "2 ms/step", "not built that way"]
    assert line(text, "| alone | 6 ms/step |")[3:] == takes
    assert "Not measured: run `make bench-peers`." in text


def test_the_same_results_are_the_same_page_and_pictures_in_docs_if_committed(tmp_path: Path):
    results = keep(tmp_path / "benchmarks" / "results", ALL)
    first = page.write(tmp_path, results)
    bytes_of = {path: path.read_bytes() for path in first}
    assert first[0] == tmp_path / "docs" / "benchmarks.md"
    assert "](../benchmarks/results/allo.json)" in first[0].read_text()
    assert {path: path.read_bytes() for path in page.write(tmp_path, results)} == bytes_of
    names = {"claims_allo.png", "claims_colony.png", "peers.png"}
    assert {path.name for path in first[1:]} == names
    assert all(f"](benchmarks/{name})" in first[0].read_text() for name in names)
    mine = keep(tmp_path / "mine", {"allo": [STEP]})
    assert page.write(tmp_path, mine)[0] == mine / "benchmarks.md"


def test_a_file_of_another_form_ends_with_3_and_names_itself(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("allo.json").write_text('{"rows": []}')
    assert run.main(["--page", "--results", "."]) == 3
    error = "allo.json: machine: Field required; `make bench BENCH=allo` writes it anew"
    assert capsys.readouterr().err.startswith(f"warning: publish: {error}; the results are kept")


def test_the_committed_page_is_what_the_committed_results_say():
    drawn = [path.stem for path in (ROOT / "docs" / "benchmarks").glob("*.png")]
    text = page.render(read(RESULTS), drawn, "../benchmarks/results")
    assert (ROOT / "docs" / "benchmarks.md").read_text() == text


def test_bars_are_ratios_and_the_mark_is_the_promise(tmp_path: Path):
    slow = [STEP._replace(name=str(by), before=measured(by)) for by in (0.012, 1.2, 0.12)]
    stored = keep(tmp_path, {"allo": slow, "peers": PEERS})
    figures = pictures.draw(named(read(stored)))
    patches = {name: figures[name].axes[0].patches for name in ("claims_allo", "peers")}
    bars = {
        name: [bar.get_x() + bar.get_width() for bar in each if bar.get_zorder() > 0]
        for name, each in patches.items()
    }
    assert bars == {"claims_allo": pytest.approx([20, 60]), "peers": pytest.approx([4, 0.5])}
    mark = figures["claims_allo"].axes[0].lines[-1]
    assert list(mark.get_xdata()) == [2, 2]
    assert pictures.draw([]) == {}


def test_no_texts_of_the_committed_pictures_overlap():
    for name, figure in pictures.draw(named(read(RESULTS))).items():
        figure.draw_without_rendering()
        for axes in figure.axes:
            texts = [text for text in (*axes.texts, *axes.get_yticklabels()) if text.get_text()]
            boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
            overlapping = [
                (a, b) for (a, box), (b, other) in combinations(boxes, 2) if box.overlaps(other)
            ]
            assert overlapping == [], name
