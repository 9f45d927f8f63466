"""Times come from alternating rounds; rows are shown and stored as they were measured."""

from functools import partial

import numpy as np
import pytest

from benchmarks.harness import Contestant, Report, cells, race, results_of
from tests.benchmarks.small_results import MEMORY, PART, PEERS, SAMPLE, SETTINGS, STEP


def test_contestants_alternate_the_first_call_is_apart_and_the_second_is_not_timed(
    capsys: pytest.CaptureFixture[str],
):
    """Only the contestants move the clock."""
    now, order = [0.0], []
    durations = {name: iter([9, 100, 2, 8, 4]) for name in "abc"}

    def work(name: str) -> None:
        order.append(name)
        now[0] += next(durations[name])

    contestants = {name: Contestant(partial(work, name), units=2) for name in "abc"}
    times = race(contestants, rounds=3, clock=lambda: now[0])
    assert "".join(order) == "abc" + "abc" + "abc" + "cba" + "abc"
    assert capsys.readouterr().err.endswith("_is_not_timed: a, b, c\n")
    np.testing.assert_allclose([each.values for each in times.values()], [[1, 4, 2]] * 3)
    assert (times["b"].median, times["b"].compile_seconds) == (2, 9 - 4)


def test_a_part_names_its_row():
    report = Report([STEP, PART, SAMPLE, *PEERS], [], "cpu")
    rows = results_of(report, SETTINGS, 3).rows
    assert [(row.name, row.part_of, row.against) for row in rows] == [
        ("step", "", "plain reference"),
        ("in a scan", "step", "plain reference"),
        ("sample", "", "plain reference"),
        ("draw", "", "cpprb"),
        ("draw", "", "torchrl, plain"),
    ]


def test_text_has_medians_in_the_unit_ratios_and_goals():
    rows = results_of(Report([STEP, PART, MEMORY], [], "cpu"), SETTINGS, 3).rows
    first, second, third = map(cells, rows)
    expected = (
        "step|ms/step|12|6|2|1|6x (3..12)|3x (1.5..6)|50 %|4x (2..8): the table of states"
        "|0.2|at least 7x|no"
    )
    assert first == expected.split("|")
    assert (second[0], second[-2:]) == ("step / in a scan", ["-", ""])
    assert third[:5] == ["rollout", "MB", "3", "4", "2"]
