"""Rows: their ratios, when a goal is met, how they are shown and kept."""

import json

import pytest

from benchmarks.table import Goal, Row, as_json, render
from tests.benchmarks.small_results import MEMORY, RING, STEP, measured


def row(ours: float, goal: Goal | None) -> Row:
    way, limit = measured(0.006), measured(0.0005)
    return Row("step", "ms/step", measured(ours), measured(0.010), way, limit, goal=goal)


@pytest.mark.parametrize(
    ("ours", "goal", "reached"),
    [
        (0.0019, Goal(5, "before"), True),
        (0.0021, Goal(5, "before"), False),
        (0.0019, Goal(3, "seed's way"), True),
        (0.0019, Goal(5, "seed's way"), False),
        (0.00099, Goal(0.5, "limit"), True),
        (0.0019, Goal(0.5, "limit"), False),
        (2.1, Goal(2, "value"), False),
        (1.9, Goal(2, "value"), True),
        (1.0, None, None),
    ],
)
def test_a_goal_is_met_by_a_ratio_or_a_value(ours: float, goal: Goal | None, reached: bool | None):
    assert row(ours, goal).goal_reached is reached


@pytest.mark.parametrize("against", ["before", "seed's way", "limit"])
def test_a_goal_against_a_contestant_that_did_not_run_is_not_met(against):
    alone = Row("step", "ms/step", measured(0.001), goal=Goal(0.1, against))
    assert alone.goal_reached is False
    assert alone.ratios == {}


def test_ratios_are_those_of_each_pair():
    result = {name: ratio.median for name, ratio in STEP.ratios.items()}
    assert result == pytest.approx(
        {
            "before/ours": 6,
            "seed's/ours": 3,
            "before/seed's": 2,
            "limit/ours": 0.5,
            "without/ours": 4,
        }
    )


def test_table_shows_medians_in_the_rows_unit_claims_and_ratios():
    text = render([STEP, row(0.004, None)._replace(name="without goal"), MEMORY])
    header, _, first, second, third = text.splitlines()
    cells = [piece.strip() for piece in first.split("  ") if piece]
    for cell in (
        "step",
        "allo-overall",
        "2-3x faster training",
        "12",
        "6",
        "2",
        "8",
        "1",
        "2 (2..2)",
        "6 (3..12)",
    ):
        assert cell in cells
    assert header.index("goal") == first.index(">= 7x before")
    assert first.split()[-2:] == ["no", "0.2"]
    assert ">=" not in second
    assert "10-20 % fewer allocations  MB" in third
    assert "  3  " in third


def test_json_keeps_the_values_of_every_round_and_what_was_taken_away():
    kept = json.loads(json.dumps(as_json(STEP)))
    assert kept["ours"] == {
        "median": 0.002,
        "rounds": [0.002, 0.004, 0.001],
        "compile_seconds": 0.25,
    }
    assert (kept["without"]["what"], kept["without"]["median"]) == ("the table of states", 0.008)
    assert kept["ratios"]["before/ours"] == {"median": 6, "least": 3, "greatest": 12}
    assert (kept["goal"], kept["met"], kept["tried"]) == (
        ">= 7x before",
        False,
        "a fused kernel gave 1.1x",
    )
    assert (kept["claims"], kept["against"], kept["point"]) == (
        ["allo-overall"],
        "plain reference",
        None,
    )
    assert as_json(RING[1])["point"] == {"curve": "sampling", "axis": "capacity", "at": 1e4}
