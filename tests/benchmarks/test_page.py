"""docs/benchmarks.md and its pictures out of small results: every number comes from them."""

from itertools import combinations
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchmarks import page, pictures
from benchmarks.claims import PROPOSALS, named, read
from benchmarks.harness import Goal, Row
from pipeline.reporting import speed
from tests.benchmarks.small_results import ALL, MEMORY, PEERS, RING, STEP, keep, measured
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
    assert line(text, "less memory", "rollout")[3:5] == ["0.75x", "1.5x"]
    assert line(text, "inference compiled")[-1] == "not measured: run `make bench BENCH=iqn`"
    for document in PROPOSALS.values():
        cells = line(text, f"| {document.title} |")
        assert sum(int(count or 0) for count in cells[2:]) == int(cells[1])
    assert "2 goals of this project: **1 reached, 1 missed**." in text


def test_a_claim_with_several_rows_has_a_line_for_all_and_one_for_each(tmp_path: Path):
    other = STEP._replace(name="other", seed_way=measured(0.012), against="one by one")
    alone = STEP._replace(name="alone", before=None)
    text = rendered(tmp_path, {"allo": [STEP, other, alone]})
    assert line(text, "2-3x faster training")[-1] == "**reproduced in 1 of 2 comparisons**"
    assert line(text, "other (before: one by one)")[3:] == ["1x", "6x (3..12)", "refuted"]
    takes = ["6 ms/step", "2 ms/step", "not built that way"]
    assert line(text, "| alone | 6 ms/step |")[3:] == takes


def test_a_missed_goal_says_by_how_much_and_what_was_tried(tmp_path: Path):
    slow = Row("network", "KiB", measured(4096.0), goal=Goal(2048, "value"), tried="small floats")
    text = rendered(tmp_path, {"allo": [*ALL["allo"], slow]})
    missed, others = text.partition("## Goals")[2].partition("<details>")[::2]
    assert line(missed, "| step |")[2:] == ["at least 7x", "6x", "86 %", "a fused kernel gave 1.1x"]
    assert line(missed, "network")[2:] == ["at most 2 KiB", "4 KiB", "50 %", "small floats"]
    assert line(others, "| allo | sample |")[2:] == ["at least 2x a proposed variant", "3x"]


def test_other_libraries_stand_in_one_line_and_bold_where_they_are_ahead(tmp_path: Path):
    part = rendered(tmp_path, ALL).partition("## Against other")[2].partition("\n## ")[0]
    assert line(part, "| draw |")[1] == "cpprb 4x<br>**torchrl, plain 0.5x**"
    assert "at 9" not in part


def test_every_row_and_note_is_there_and_machines_that_differ(tmp_path: Path):
    keep(tmp_path, {"actor_critic": [MEMORY]}, backend="cuda")
    text = rendered(tmp_path, {"allo": ALL["allo"], "peers": PEERS})
    whole = text.partition("## All rows")[2]
    cells = "step|ms/step|12|6|2|1|6x (3..12)|3x (1.5..6)|50 %|4x (2..8): the table of states|0.2"
    assert line(whole, "| step |") == cells.split("|")
    assert line(whole, "(torchrl, plain)")[2] == "1 (torchrl, plain)"
    assert "* a note on peers" in whole
    assert "iqn: not measured: run `make bench BENCH=iqn`." in whole
    assert line(text, "| backend |")[1] == "cpu (allo, peers), cuda (actor_critic)"


def test_nothing_measured_is_a_page_that_says_so(tmp_path: Path):
    text = page.render(read(tmp_path), (), "..")
    assert "not measured: run `make bench BENCH=allo`" in text
    assert "Not measured: run `make bench-peers`." in text
    assert pictures.draw([]) == {}


def test_tables_are_whole_whatever_a_row_is_called(tmp_path: Path):
    odd = STEP._replace(name="a | b <i>*c*</i> `d`", tried="one\ntwo")
    html = MarkdownIt("commonmark").enable("table").render(rendered(tmp_path, {"allo": [odd]}))
    assert "<td>a | b &lt;i&gt;*c*&lt;/i&gt; <code>d</code></td>\n<td>ms/step</td>" in html
    assert "<td>one two</td>" in html


def test_the_same_results_are_the_same_page_and_pictures_in_docs_if_committed(tmp_path: Path):
    results = keep(tmp_path / "benchmarks" / "results", ALL)
    first = page.write(tmp_path, results)
    bytes_of = {path: path.read_bytes() for path in first}
    assert first[0] == tmp_path / "docs" / "benchmarks.md"
    assert "](../benchmarks/results/allo.json)" in first[0].read_text()
    assert {path: path.read_bytes() for path in page.write(tmp_path, results)} == bytes_of
    names = {"claims_allo.png", "claims_colony.png", "peers.png", "scaling.png"}
    assert {path.name for path in first[1:]} == names
    assert all(f"](benchmarks/{name})" in first[0].read_text() for name in names)
    mine = keep(tmp_path / "mine", {"allo": [STEP]})
    assert page.write(tmp_path, mine)[0] == mine / "benchmarks.md"


def test_a_file_of_another_form_ends_with_3_and_names_itself(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("allo.json").write_text('{"rows": []}')
    assert page.main(["--results", "."]) == 3
    error = "allo.json: machine: Field required; `make bench BENCH=allo` writes it anew"
    assert capsys.readouterr().err == f"page: {error} [exit 3]\n"


def test_the_committed_page_is_what_the_committed_results_say():
    drawn = [path.stem for path in (ROOT / "docs" / "benchmarks").glob("*.png")]
    text = page.render(read(RESULTS), drawn, "../benchmarks/results")
    assert (ROOT / "docs" / "benchmarks.md").read_text() == text


# Pictures.


def test_bars_are_the_measured_ratios_and_the_mark_is_the_promise(tmp_path: Path):
    slow = [STEP._replace(name=str(by), before=measured(by)) for by in (0.012, 1.2, 0.12)]
    figures = pictures.draw(named(read(keep(tmp_path, {"allo": slow, "peers": PEERS}))))
    bars = {
        name: [bar.get_x() + bar.get_width() for bar in figures[name].axes[0].patches]
        for name in ("claims_allo", "peers")
    }
    assert bars == {"claims_allo": pytest.approx([20, 60]), "peers": pytest.approx([4, 0.5])}
    mark = figures["claims_allo"].axes[0].lines[-1]
    assert list(mark.get_xdata()) == [2, 2]


def test_a_curve_has_a_line_per_side_in_the_order_of_what_grows(tmp_path: Path):
    (axes,) = pictures.draw(named(read(keep(tmp_path, {"machine": RING}))))["scaling"].axes
    lines = dict(zip(pictures.SIDES, axes.lines, strict=True))
    assert list(lines["before"].get_xdata()) == [1e3, 1e4, 1e6]
    assert list(lines["before"].get_ydata()) == pytest.approx([100, 1000, 1e5])
    assert list(lines["ours"].get_ydata()) == pytest.approx([2, 2, 2])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1k", "10k", "1M"]
    assert [text.get_text() for text in axes.texts] == ["50x", "500x", "50000x"]


def test_no_text_of_bars_stands_on_another():
    bars = [(speed.Ratio(by, by / 2, by * 2), pictures.BLUE, f"{by} library") for by in (0.1, 900)]
    high = pictures.Group("a long name " * 8, bars[:1], mark=9.0)
    groups = [high, high, pictures.Group("b", bars), pictures.Group("c", bars)]
    figure = pictures.draw_bars(groups, {"ours": pictures.BLUE}, "times")
    FigureCanvasAgg(figure).draw()
    texts = (*figure.axes[0].texts, *figure.axes[0].get_yticklabels())
    boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) == 2 * (2 + 3)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
