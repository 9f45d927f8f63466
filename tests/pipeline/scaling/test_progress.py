"""What a person sees while a sweep runs: counts, the best, the time left, on any kind of stderr."""

from pathlib import Path

import pytest

from pipeline.scaling import progress
from pipeline.scaling.plan import Ledger
from pipeline.scaling.progress import SweepProgress
from pipeline.scaling.records import Point, Trial
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_sweep import HIDDEN, RATE, trial


def is_searched(trial: Trial) -> bool:
    return trial.role != "confirm"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: Patch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(capsys: Capture) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_lines_hold_counts_the_best_and_the_time_left(
    tmp_path: Path, clock: Clock, capsys: Capture
):
    ledger = Ledger(tmp_path, is_higher_better=True)
    with SweepProgress("tried search", 5, ledger, is_searched) as shown:
        ledger.put(trial(0, values={RATE: 0.00123456, HIDDEN: 64}))
        shown.begun(ledger.trials[0])
        assert lines(capsys) == [f"tried search: trial 0 begins  {RATE}=0.00123  {HIDDEN}=64"]
        clock.now += 60
        shown.ended(ledger.update(0, state="finished", score=0.5))
        assert lines(capsys) == [
            "tried search: trial 0 finished, 0.5000; 1/5 ended, best 0.5000 (trial 0), "
            "about 4 min left"
        ]
        ledger.put(trial(1))
        ledger.put(trial(2))
        clock.now += 60
        shown.ended(ledger.update(1, state="stopped", last=Point(step=1500, value=0.1)))
        assert lines(capsys) == [
            "tried search: trial 1 stopped at step 1,500; 2/5 ended, 1 running, 1 stopped, "
            "best 0.5000 (trial 0), about 3 min left"
        ]
        clock.now += 3
        shown.ended(ledger.update(2, state="diverged", reason="loss is nan"))
        (said,) = lines(capsys)
        assert said.startswith("tried search: trial 2 diverged: loss is nan; 3/5 ended, 1 diverged")
        assert said.endswith("about 82 s left")


def test_a_continued_phase_says_how_far_it_is_and_measures_only_what_it_ran(
    tmp_path: Path, clock: Clock, capsys: Capture
):
    ledger = Ledger(tmp_path, is_higher_better=False)
    for number, score in enumerate([0.5, 0.25]):
        ledger.put(trial(number, score))
    ledger.put(trial(2))
    ledger.put(trial(3, 0.1, role="confirm", repeats=0))
    with SweepProgress("tried search", 4, ledger, is_searched) as shown:
        assert lines(capsys) == ["tried search: continues with 2 of 4 trials ended"]
        clock.now += 31
        shown.tick()
        (said,) = lines(capsys)
        assert said.endswith("2/4 ended, 1 running, best 0.2500 (trial 1), time left unknown")
        clock.now += 29
        shown.ended(ledger.update(2, state="finished", score=0.75))
        assert lines(capsys)[0].endswith("3/4 ended, best 0.2500 (trial 1), about 60 s left")


def test_without_an_end_there_is_a_line_every_half_minute(
    tmp_path: Path, clock: Clock, capsys: Capture
):
    with SweepProgress("tried search", 4, Ledger(tmp_path, True), is_searched) as shown:
        for _ in range(100):
            clock.now += 1
            shown.tick()
    assert lines(capsys) == ["tried search: 0/4 ended, none runs, time left unknown"] * 3


@pytest.mark.parametrize("is_terminal", [False, True])
def test_only_a_terminal_gets_control_codes(
    is_terminal: bool, tmp_path: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    ledger = Ledger(tmp_path, True)
    ledger.put(trial(0))
    with SweepProgress("tried search", 2, ledger, is_searched) as shown:
        shown.begun(ledger.trials[0])
        shown.note("waits for a node")
        shown.tick()
        shown.ended(ledger.update(0, state="finished", score=0.5))
    said = capsys.readouterr().err
    assert ("\r" in said or "\x1b" in said) == is_terminal
    assert "tried search: waits for a node\n" in said
    assert "best 0.5000 (trial 0)" in said


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_durations_are_short(seconds: float, text: str):
    assert progress._duration(seconds) == text
