"""What rows say of the promises that they name."""

from pathlib import Path

import pytest

from benchmarks.claims import CLAIMS, PROPOSALS
from benchmarks.result_files import COMMANDS, named, read
from benchmarks.table import Row
from benchmarks.verdicts import ClaimVerdict, claim_verdicts, of_proposal, uncovered, unknown
from tests.benchmarks.small_results import measured, rows_of
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
UNMEASURED = [
    name
    for name in COMMANDS
    if "BENCH=" in COMMANDS[name] and not (RESULTS / f"{name}.json").exists()
]
committed = pytest.mark.skipif(
    bool(UNMEASURED), reason=f"not measured yet: {', '.join(UNMEASURED)}"
)


def row(
    name: str, *claims: str, before: float = 1.0, its_way: tuple[float, ...] = (), ours: float = 0.1
) -> Row:
    way = measured(*its_way) if its_way else None
    return Row(name, "s", measured(ours), measured(before), way, claims=claims)


def verdict(folder: Path, claim: str, *rows: Row) -> ClaimVerdict:
    return next(item for item in claim_verdicts(rows_of(folder, rows)) if item.id == claim)


@pytest.mark.parametrize(
    ("its_way", "word"),
    [
        ((0.5, 0.5, 0.5), "reproduced"),
        ((0.5, 0.4, 0.9), "reproduced"),
        ((0.6, 0.4, 0.9), "in doubt"),
        ((0.6, 0.6, 0.9), "refuted"),
        ((1.5, 1.5, 1.5), "refuted"),
    ],
)
def test_a_promise_of_2x_is_held_against_the_rounds(
    tmp_path: Path, its_way: tuple[float, ...], word: str
):
    assert CLAIMS["allo-overall"].least == 2
    result = verdict(tmp_path, "allo-overall", row("step", "allo-overall", its_way=its_way))
    assert (result.word, result.text, result.words) == (word, word, (word,))


def test_what_the_project_reaches_is_no_verdict_on_the_proposal(tmp_path: Path):
    result = verdict(
        tmp_path, "allo-overall", row("step", "allo-overall", its_way=(0.9, 0.9, 0.9), ours=0.001)
    )
    assert result.word == "refuted"


def test_where_only_ours_is_measured_it_is_told(tmp_path: Path):
    result = verdict(
        tmp_path, "allo-overall", row("a", "allo-overall"), row("b", "allo-overall", ours=0.05)
    )
    assert (result.word, result.text) == (
        "not built that way",
        "not built that way; ours: 10x to 20x",
    )


def test_a_promise_without_a_number_cannot_be_checked(tmp_path: Path):
    result = verdict(tmp_path, "allo-8", row("step", "allo-8", its_way=(0.5, 0.5, 0.5)))
    assert result.text == "no number to check"


def test_several_rows_that_differ_hold_in_part(tmp_path: Path):
    rows = (
        row("a", "allo-overall", its_way=(0.4, 0.4, 0.4)),
        row("b", "allo-overall", its_way=(0.8, 0.8, 0.8)),
        row("c", "allo-overall"),
    )
    result = verdict(tmp_path, "allo-overall", *rows)
    assert (result.word, result.text) == ("in part", "reproduced in 1 of 2 comparisons")
    assert result.words == ("reproduced", "refuted", "not built that way")


def test_a_comparison_that_several_rows_repeat_counts_once(tmp_path: Path):
    same = {"its_way": (0.8, 0.8, 0.8)}
    rows = [row(name, "allo-overall", ours=ours, **same) for name, ours in (("a", 0.1), ("b", 0.2))]
    rows.append(row("c", "allo-overall", its_way=(0.6, 0.4, 0.9)))
    result = verdict(tmp_path, "allo-overall", *rows)
    assert (result.word, result.text) == (
        "in doubt",
        "refuted in 1 of 2 comparisons, in doubt in the others",
    )


def test_no_row_is_the_sentence_that_says_why_or_what_to_run(tmp_path: Path):
    assert verdict(tmp_path, "dynamics-naming").text == CLAIMS["dynamics-naming"].no_row
    missing = verdict(tmp_path, "agents-overall")
    assert (missing.word, missing.text) == (
        "not measured",
        "not measured: run `make bench BENCH=iqn`",
    )


def test_each_claim_has_a_verdict_in_the_order_of_its_proposal():
    result = claim_verdicts([])
    assert [item.id for item in result] == list(CLAIMS)
    assert [item for name in PROPOSALS for item in of_proposal(result, name)] == result


def test_claims_without_a_row_and_rows_without_a_claim_are_found(tmp_path: Path):
    rows = rows_of(tmp_path, [row("a", "allo-1")])
    assert "allo-1" not in uncovered(rows)
    assert {"allo-2", "agents-overall"} <= set(uncovered(rows))
    assert "dynamics-naming" not in uncovered(rows)
    wrong = [rows[0]._replace(row=rows[0].row.model_copy(update={"claims": ["allo-99"]}))]
    assert unknown(wrong) == ["allo-99"]


@committed
def test_committed_results_answer_every_claim():
    rows = named(read(RESULTS))
    assert uncovered(rows) == []
    assert unknown(rows) == []


@committed
def test_each_goal_that_is_missed_says_what_was_tried():
    assert [
        item.name
        for item in named(read(RESULTS))
        if item.row.is_reached is False and not item.row.tried
    ] == []
