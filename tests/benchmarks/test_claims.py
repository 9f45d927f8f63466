"""What rows say of the claims that they name."""

from pathlib import Path

import pytest

from benchmarks.claims import CLAIMS, COMMANDS, PROPOSALS, Verdict, named, read, verdicts
from benchmarks.harness import Row
from tests.benchmarks.small_results import keep, measured, rows_of
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
CLAIM = "allo-overall"
REPRODUCED, REFUTED, IN_DOUBT = (0.4, 0.4, 0.4), (0.8, 0.8, 0.8), (0.6, 0.4, 0.9)
OTHER_RESULTS = (
    "active_dynamics_decoders",
    "active_dynamics_fields",
    "allo_grids",
    "allo_states",
    "scaling",
    "seeds",
)
"""What commands beside `make bench` and `make bench-peers` write there."""


def row(name: str, its_way: tuple[float, ...], claim: str = CLAIM) -> Row:
    way = measured(*its_way) if its_way else None
    return Row(name, "s", measured(0.1), measured(1.0), way, claims=(claim,))


def verdict(folder: Path, claim: str, *rows: Row) -> Verdict:
    results = verdicts(claim.partition("-")[0], rows_of(folder, rows))
    return next(item for item in results if item.claim == CLAIMS[claim])


@pytest.mark.parametrize(
    ("ways", "word", "text"),
    [
        ([(0.5, 0.4, 0.9)], "reproduced", "reproduced"),
        ([IN_DOUBT], "in doubt", "in doubt"),
        ([(0.6, 0.51, 0.9)], "refuted", "refuted"),
        ([REPRODUCED, REFUTED, ()], "in part", "reproduced in 1 of 2 comparisons"),
        (
            [REFUTED, REFUTED, IN_DOUBT],
            "in doubt",
            "refuted in 1 of 2 comparisons, in doubt in the others",
        ),
        ([(), ()], "not built that way", "not built that way"),
    ],
)
def test_a_promise_of_2x_is_held_against_the_rounds_of_all_its_rows(tmp_path, ways, word, text):
    assert CLAIMS[CLAIM].least == 2
    result = verdict(tmp_path, CLAIM, *(row(f"row {i}", way) for i, way in enumerate(ways)))
    assert (result.word, result.text, len(result.words)) == (word, text, len(ways))


def test_a_promise_in_bytes_is_held_against_the_proposed_way_alone(tmp_path: Path):
    for way, word in ((40.4e3, "reproduced"), (41e3, "refuted")):
        sides = {"ours": measured(80e3), "seed_way": measured(way)}
        notes = Row("notes", "KiB", **sides, claims=("replay-memory",))
        assert verdict(tmp_path, "replay-memory", notes).word == word


def test_a_promise_about_gpus_is_not_judged_on_a_cpu(tmp_path: Path):
    for folder, word in (("cuda", "reproduced"), ("cpu", "needs a GPU")):
        keep(tmp_path / folder, {"allo": [row("update", REPRODUCED, "colony-amp")]}, device=folder)
        results = verdicts("colony", named(read(tmp_path / folder)))
        words = {item.claim: item.word for item in results}
        assert words[CLAIMS["colony-amp"]] == word


def test_without_a_number_or_a_row_the_reason_is_said(tmp_path: Path):
    result = verdict(tmp_path, "allo-8", row("step", (0.5, 0.5, 0.5), "allo-8"))
    assert result.text == "no number to check"
    assert verdict(tmp_path, "dynamics-naming").text == CLAIMS["dynamics-naming"].no_row
    assert verdict(tmp_path, "agents-overall").text == "not measured: run `make bench BENCH=iqn`"


def test_committed_results_answer_every_claim_and_missed_goals_say_what_was_tried():
    rows = named(read(RESULTS))
    results = [item for name in PROPOSALS for item in verdicts(name, rows)]
    assert [item.claim for item in results] == list(CLAIMS.values())
    assert [item.claim.what for item in results if item.word == "not measured"] == []
    assert {claim for item in rows for claim in item.row.claims} <= CLAIMS.keys()
    assert len({(item.benchmark, item.key) for item in rows}) == len(rows)
    missed = [item for item in rows if item.row.goal_reached is False]
    assert [item.key for item in missed if not item.row.tried] == []
    assert {path.stem for path in RESULTS.glob("*.json")} <= {*COMMANDS, *OTHER_RESULTS}
