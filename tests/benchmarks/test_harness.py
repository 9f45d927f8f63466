"""Times come from alternating rounds; rows are shown and stored as they were measured."""

import numpy as np
import pytest

from benchmarks.harness import Contestant, Report, race, render, results_of
from tests.benchmarks.small_results import MEMORY, PART, PEERS, SAMPLE, SETTINGS, STEP


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


def test_contestants_take_turns_in_alternating_order_and_are_announced(
    capsys: pytest.CaptureFixture[str],
):
    bench = Bench()
    race({name: bench.contestant(name, [1.0] * 5) for name in "abc"}, rounds=3, clock=bench.clock)
    assert bench.order == "abc" + "abc" + "abc" + "cba" + "abc"
    assert capsys.readouterr().err.endswith("_are_announced: a, b, c\n")


def test_first_call_is_apart_and_the_second_is_not_timed():
    bench = Bench()
    durations = [9.0, 100.0, 2.0, 8.0, 4.0]
    times = race({"a": bench.contestant("a", durations, units=2)}, rounds=3, clock=bench.clock)["a"]
    np.testing.assert_allclose(times.values, [1, 4, 2])
    assert (times.median, times.compile_seconds) == (2, 9 - 4)


def test_a_part_names_its_row():
    report = Report([STEP, PART, SAMPLE, *PEERS], [], "cpu")
    rows = results_of(report, SETTINGS, 3).rows
    assert [(row.name, row.part_of, row.against) for row in rows] == [
        ("step", "", "plain reference"),
        ("in a scan", "step", "plain reference"),
        ("sample", "", "plain reference"),
        ("draw", "", "cpprb"),
        ("draw", "", "torchrl, plain"),
        ("at 9", "draw", "cpprb"),
    ]


def test_text_has_medians_in_the_unit_ratios_and_goals():
    rows = results_of(Report([STEP, PART, MEMORY], [], "cpu"), SETTINGS, 3).rows
    _, _, *lines = render(rows).splitlines()
    first, second, third = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    expected = (
        "step|ms/step|12|6|2|1|6x (3..12)|3x (1.5..6)|50 %|4x (2..8): the table of states"
        "|0.2|at least 7x|no"
    )
    assert first == expected.split("|")
    assert (second[0], second[-2:]) == ("step / in a scan", ["-", ""])
    assert third[:5] == ["rollout", "MB", "3", "4", "2"]
