"""Which rows of a training are reported: all that a schedule compares, and not too many others."""

from itertools import pairwise
from typing import Any

import pytest

from pipeline.scaling import trial
from pipeline.scaling.records import Point
from pipeline.scaling.trial import RUNG_VALUE, Pace
from tests.pipeline.fixture_types import Patch


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: Patch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trial, "time", clock)
    return clock


def row(step: int) -> Point:
    return Point(step=step, value=step / 1000)


def reports(pace: Pace, has_ended: bool = False) -> list[dict[str, Any]]:
    reported = []
    while (report := pace.due(has_ended)) is not None:
        reported.append(report)
    return reported


def steps(pace: Pace, has_ended: bool = False) -> list[int]:
    return [report["step"] for report in reports(pace, has_ended)]


def test_each_first_row_at_or_after_a_rung_is_reported(clock: Clock):
    pace = Pace((500, 1500))
    assert clock.now == 1000.0
    pace.add([row(step) for step in range(120, 2000, 120)])
    assert reports(pace) == [
        {"step": 600, "value": 0.6, RUNG_VALUE: 0.6},
        {"step": 1560, "value": 1.56, RUNG_VALUE: 1.56},
    ]
    assert steps(pace, has_ended=True) == [1920]


def test_the_same_rows_are_compared_however_they_arrive(clock: Clock):
    compared = []
    for size in (1, 3, 100):
        pace = Pace((500, 1500))
        rows = [row(step) for step in range(100, 2001, 100)]
        reported: list[int] = []
        while rows:
            pace.add(rows[:size])
            del rows[:size]
            clock.now += 5
            reported += [report["step"] for report in reports(pace) if RUNG_VALUE in report]
        compared.append(reported)
    assert compared == [[500, 1500]] * 3


def test_one_row_that_passes_several_rungs_is_one_report(clock: Clock):
    pace = Pace((5, 15, 45))
    pace.add([row(100)])
    clock.now += 5
    assert steps(pace, has_ended=True) == [100]


def test_others_are_reported_at_most_once_a_second_the_newest_of_them(clock: Clock):
    pace, reported = Pace(()), []
    for step in range(100):
        pace.add([row(step)])
        clock.now += 0.1
        reported += steps(pace)
    assert 10 <= len(reported) <= 11
    assert all(later - earlier == 10 for earlier, later in pairwise(reported))
    pace.add([row(200), row(201)])
    assert steps(pace) == []
    clock.now += 1
    assert steps(pace) == [201]


def test_the_last_row_is_reported_before_the_end_once(clock: Clock):
    pace = Pace((500,))
    pace.add([row(500), row(600)])
    assert steps(pace) == [500]
    pace.add([row(700)])
    assert steps(pace) == []
    assert steps(pace, has_ended=True) == [700]
    clock.now += 5
    assert steps(pace, has_ended=True) == []


def test_a_training_without_the_watched_metric_is_late_far_behind_the_first_rung(clock: Clock):
    pace = Pace((500, 1500))
    assert clock.now == 1000.0
    assert [pace.is_late(step) for step in (0, 1000, 1001)] == [False, False, True]
    pace.add([row(100)])
    assert not pace.is_late(1001)
    assert not Pace(()).is_late(10**9)
