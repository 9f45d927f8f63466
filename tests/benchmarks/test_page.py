"""docs/benchmarks.md out of a small JSON: every number comes from it, and nothing that is missing
is passed over.
"""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from benchmarks import page, result_files
from benchmarks.claims import PROPOSALS
from benchmarks.table import Goal, Row
from pipeline.runtime.errors import ArtifactError
from tests.benchmarks.small_results import ALL, MEMORY, PEERS, STEP, keep, measured
from tests.benchmarks.test_verdicts import RESULTS, committed
from tests.conftest import ROOT


def rendered(folder: Path, rows: dict[str, list[Row]], drawn: tuple[str, ...] = ()) -> str:
    return page.render(result_files.read(keep(folder, rows)), drawn, "..")


def line(text: str, *parts: str) -> list[str]:
    """The cells of the one line of a table that has all these parts."""
    (result,) = [
        item
        for item in text.splitlines()
        if item.startswith("|") and all(part in item for part in parts)
    ]
    return [cell.strip() for cell in result.strip("|").split(" | ")]


def test_an_item_stands_beside_its_promise_its_numbers_and_its_verdict(tmp_path: Path):
    text = rendered(tmp_path, ALL)
    assert line(text, "all of it", "2-3x faster training") == [
        "all of it", "2-3x faster training", "step",
        "ms/step", "12", "6", "2", "2x (2..2)", "6x (3..12)", "reproduced",
    ]  # fmt: skip
    assert line(text, "less memory", "rollout")[3:7] == ["MB", "3", "4", "2"]
    assert line(text, "one application of the encoder")[2] == "step / in a scan"


def test_an_item_with_several_rows_has_a_line_for_all_and_one_for_each(tmp_path: Path):
    other = STEP._replace(name="other step", seed_way=measured(0.012))
    text = rendered(tmp_path, {"allo": [STEP, other]})
    assert line(text, "2-3x faster training")[-1] == "**reproduced in 1 of 2 comparisons**"
    assert line(text, "other step", "refuted")[3:6] == ["ms/step", "12", "12"]
    assert line(text, "| step | ms/step | 12 | 6 |", "reproduced")[:2] == ["", ""]


def test_an_item_that_nothing_was_measured_for_says_why(tmp_path: Path):
    text = rendered(tmp_path, ALL)
    assert (
        line(text, "`_config` in place of `_cfg`")[-1]
        == "a name has no speed; here one pydantic config serves all"
    )
    assert (
        line(text, "forward and backward pass compiled")[-1]
        == "not measured: run `make bench BENCH=iqn`"
    )


def test_counts_of_each_proposal_add_up_to_its_items(tmp_path: Path):
    text = rendered(tmp_path, ALL)
    for lines in PROPOSALS.values():
        cells = line(text, f"| {lines.title} |")
        assert sum(int(count or 0) for count in cells[2:]) == int(cells[1])
    assert "2 goals of this project: **1 met, 1 missed**." in text


def test_a_missed_goal_says_by_how_much_and_what_was_tried(tmp_path: Path):
    slow = Row(
        "network",
        "KiB",
        measured(4096.0),
        goal=Goal(2048, "value"),
        tried="smaller floats lose 3 %",
    )
    none = Row("nothing to compare", "s", measured(1.0), goal=Goal(2, "before"))
    share = Row("matmuls", "ms", measured(0.004), limit=measured(0.001), goal=Goal(0.5, "limit"))
    text = rendered(tmp_path, {"allo": [*ALL["allo"], slow, none, share]})
    missed, encountered = text.partition("### Missed: 4")[2].partition("### Met: 1")[::2]
    assert line(missed, "| step |")[1:] == [
        "step",
        "at least 7x before",
        "6x",
        "86 %",
        "a fused kernel gave 1.1x",
    ]
    assert line(missed, "network")[2:] == [
        "at most 2 KiB",
        "4 KiB",
        "50 %",
        "smaller floats lose 3 %",
    ]
    assert line(missed, "nothing")[2:] == ["at least 2x before", "not measured", "0 %", "-"]
    assert line(missed, "matmuls")[2:5] == ["at least 50 % of the machine's limit", "25 %", "50 %"]
    assert line(encountered.partition("## ")[0], "sample")[2:] == [
        "at least 2x the proposal's way",
        "3x",
    ]


def test_what_is_taken_away_stands_beside_what_is_left_of_the_ratio(tmp_path: Path):
    part = rendered(tmp_path, ALL).partition("## What the ratios measure")[2].partition("\n## ")[0]
    assert line(part, "the table of states")[4:] == [
        "12",
        "8",
        "2",
        "6x (3..12)",
        "1.5x (1.5..1.5)",
        "4x (2..8)",
    ]


def test_other_libraries_are_columns_of_one_line_and_bold_where_they_are_ahead(tmp_path: Path):
    part = rendered(tmp_path, ALL).partition("## Against other libraries")[2].partition("\n## ")[0]
    assert line(part, "| work |") == ["work", "cpprb", "flashbax"]
    assert line(part, "sample 256") == ["sample 256", "4x (4..4)", "**0.5x (0.5..0.5)**"]


def test_what_stands_for_before_is_named_where_it_is_no_plain_reference(tmp_path: Path):
    other = STEP._replace(name="vmap", against="one by one", claims=("agents-train-together",))
    text = rendered(tmp_path, {"iqn": [other], "peers": PEERS})
    assert line(text, "vmap of training")[4:7] == ["12 (one by one)", "6", "2"]
    assert line(text, "8 (cpprb)")[:2] == ["sample 256; before: cpprb", "us/call"]


def test_ours_without_something_is_no_other_library(tmp_path: Path):
    start = STEP._replace(name="start", against="an empty cache")
    advantages = STEP._replace(name="advantages", against="torchrl, vectorised")
    result = result_files.against_peers(
        result_files.named(result_files.read(keep(tmp_path, {"machine": [start, advantages]})))
    )
    assert {work: list(each) for work, each in result.items()} == {
        "advantages": ["torchrl, vectorised"]
    }


@pytest.mark.parametrize(
    ("name", "work", "library"),
    [
        (
            "advantages, T=200; before: torchrl, vectorised",
            "advantages, T=200",
            "torchrl, vectorised",
        ),
        ("update, before: torchrl", "update", "torchrl"),
        ("update against torchrl", "update", "torchrl"),
        ("before: torchrl", "", "torchrl"),
        ("CartPole", "CartPole", "torchrl"),
    ],
)
def test_a_works_name_is_told_from_the_librarys(tmp_path: Path, name: str, work: str, library: str):
    rows = keep(tmp_path, {"peers": [PEERS[0]._replace(name=name, against="torchrl")]})
    ((result, beside),) = result_files.against_peers(
        result_files.named(result_files.read(rows))
    ).items()
    assert (result, list(beside)) == (work, [library])


def test_every_row_and_note_is_there_and_what_was_not_measured_is_said(tmp_path: Path):
    text = rendered(tmp_path, ALL)
    whole = text.partition("## All rows")[2]
    assert line(whole, "| step |")[1:] == [
        "ms/step",
        "12",
        "6",
        "2",
        "8",
        "1",
        "6x (3..12)",
        "3x (1.5..6)",
        "50 %",
        "0.2",
    ]
    for rows in ALL.values():
        assert all(row.name.strip() in whole for row in rows)
    assert "* a note on machine" in whole
    assert "* iqn: not measured: run `make bench BENCH=iqn`" in text
    assert "* iqn_to_return: not measured: run `make bench-return`" in text


def test_of_machines_that_differ_each_is_told(tmp_path: Path):
    keep(tmp_path, {"allo": [STEP]})
    keep(tmp_path, {"actor_critic": [MEMORY]}, backend="cuda")
    text = page.render(result_files.read(tmp_path), (), "..")
    assert line(text, "some CPU") == ["cpu", "some CPU"]
    assert line(text, "| allo.backend |")[1] == "cpu"
    assert line(text, "actor_critic.backend")[1] == "cuda"


def test_nothing_measured_is_a_page_that_says_so(tmp_path: Path):
    text = page.render(result_files.read(tmp_path), (), "..")
    assert text.count("not measured: run `make bench BENCH=allo`") >= 2
    assert "Not measured: run `make bench-peers`." in text


def test_tables_are_whole_whatever_a_row_is_called(tmp_path: Path):
    text = rendered(
        tmp_path, {"allo": [STEP._replace(name="a | b <i>*c*</i> `d`", tried="one\ntwo")]}
    )
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert (
        "<td>a | b &lt;i&gt;*c*&lt;/i&gt; <code>d</code></td>\n<td>ms/step</td>\n<td>12</td>"
        in html
    )
    assert "<td>one two</td>" in html


def test_the_same_results_are_the_same_page_with_the_same_pictures(tmp_path: Path):
    keep(tmp_path / "results", ALL)
    first = page.write(tmp_path, tmp_path / "results")
    bytes_of = {path.name: path.read_bytes() for path in first}
    assert first[0] == tmp_path / "results" / "benchmarks.md"
    assert {path.name for path in page.write(tmp_path, tmp_path / "results")} == set(bytes_of)
    assert {path.name: path.read_bytes() for path in first} == bytes_of
    for path in first[1:]:
        assert f"](benchmarks/{path.name})" in first[0].read_text()


def test_committed_results_are_told_in_docs(tmp_path: Path):
    keep(tmp_path / "benchmarks" / "results", {"allo": [STEP]})
    written = page.write(tmp_path, tmp_path / "benchmarks" / "results")
    assert written[0] == tmp_path / "docs" / "benchmarks.md"
    assert "](../benchmarks/results/allo.json)" in written[0].read_text()


def test_a_file_of_another_form_ends_with_3_and_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (keep(tmp_path / "mine", {"allo": [STEP]}) / "allo.json").write_text('{"rows": []}')
    assert page.main(["--results", "mine"]) == 3
    lines = capsys.readouterr().err
    assert lines.startswith(
        "page: mine/allo.json: cpu: Field required; `make bench BENCH=allo` writes it anew"
    )
    with pytest.raises(ArtifactError):
        result_files.read(Path("mine"))


@committed
def test_the_committed_page_is_what_the_committed_results_say():
    drawn = [path.name for path in (ROOT / "docs" / "benchmarks").glob("*.png")]
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page.render(
        result_files.read(RESULTS), drawn, "../benchmarks/results"
    )
