"""Times come from alternating rounds; rows compare them round by round."""

import json

import numpy as np
import pytest

from benchmarks import run
from benchmarks.harness import Contestant, Times, race, ratio
from benchmarks.table import Goal, Row, as_json, render


class Bench:
    """A clock that only the contestants move, and the order in which they ran."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, ""

    def contestant(self, name: str, durations: list[float], units: float = 1.0) -> Contestant:
        coming = iter(durations)

        def work() -> None:
            self.order += name
            self.now += next(coming)

        return Contestant(work, units)

    def clock(self) -> float:
        return self.now


def test_contestants_take_turns_in_alternating_order():
    bench = Bench()
    race({name: bench.contestant(name, [1.0] * 5) for name in "abc"}, rounds=3, clock=bench.clock)
    assert bench.order == "abc" + "abc" + "abc" + "cba" + "abc"


def test_first_call_is_apart_and_the_second_is_not_timed():
    bench = Bench()
    durations = [9.0, 100.0, 2.0, 8.0, 4.0]
    times = race({"a": bench.contestant("a", durations, units=2)}, rounds=3, clock=bench.clock)["a"]
    np.testing.assert_allclose(times.seconds, [1, 4, 2])
    assert times.median == 2
    assert times.compile_seconds == 9 - 4


def test_ratio_is_the_median_of_the_rounds_and_not_of_their_times():
    found = ratio(Times(np.array([6.0, 40.0, 10.0])), Times(np.array([3.0, 10.0, 2.0])))
    assert found == (4.0, 2.0, 5.0)


def row(ours: float, goal: Goal | None) -> Row:
    before, seed = Times(np.full(3, 0.010)), Times(np.full(3, 0.006))
    return Row("step", "000", "2x", "ms/step", Times(np.full(3, ours), 1.5), before, seed, goal)


@pytest.mark.parametrize(
    ("ours", "goal", "met"),
    [
        (0.0019, Goal(5, "before"), True),
        (0.0021, Goal(5, "before"), False),
        (0.0019, Goal(3, "seed's way"), True),
        (0.0019, Goal(5, "seed's way"), False),
        (2.1, Goal(2, "limit"), False),
        (1.9, Goal(2, "limit"), True),
        (1.0, None, None),
    ],
)
def test_a_goal_is_met_by_a_ratio_or_a_limit(ours, goal, met):
    assert row(ours, goal).met is met


def test_a_goal_against_a_contestant_that_did_not_run_is_not_met():
    assert row(0.001, Goal(1, "before"))._replace(before=None).met is False


def test_table_shows_medians_in_the_rows_unit_and_ratios():
    text = render([row(0.002, Goal(5, "before")), row(0.004, None)._replace(name="without goal")])
    header, _, first, second = text.splitlines()
    assert first.split("  ")[0] == "step"
    for cell in ("10", "6", "2", "5 (5..5)", "3 (3..3)", ">= 5x before", "yes", "1.5"):
        assert cell in [piece.strip() for piece in first.split("  ")]
    assert header.index("goal") == first.index(">= 5x")
    assert ">=" not in second


def test_json_keeps_the_seconds_of_every_round():
    kept = json.loads(json.dumps(as_json(row(0.002, Goal(5, "before")))))
    assert kept["ours"] == {"median_seconds": 0.002, "seconds": [0.002] * 3, "compile_seconds": 1.5}
    assert kept["ratios"]["before/ours"]["median"] == pytest.approx(5)
    assert (kept["goal"], kept["met"]) == (">= 5x before", True)


def test_fewer_than_five_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        run.main(["allo", "--rounds", "4"])
    assert "--rounds 4: medians of fewer than 5 rounds say nothing" in capsys.readouterr().err
