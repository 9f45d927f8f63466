"""What an engine asks of a plan and of a place, and what it does when one of them fails."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.errors import Interrupted
from pipeline.tracking.outbox import Outbox
from pipeline.trials import engine
from pipeline.trials.engine import Event, ListPlan, run, run_all
from pipeline.trials.progress import Progress
from pipeline.trials.trial import Outcome, Point, Trial, folder_of, write_outcome
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import header
from tests.pipeline.trials import stand_ins
from tests.pipeline.trials.stand_ins import trial

DONE = Outcome("finished", {"cosine_mean": 0.5})


class InventedPlace(stand_ins.InventedPlace):
    """Its trials finish, after what `scripts` say by their keys."""

    def __init__(self, root: Path, **scripts: list[Event | Exception]) -> None:
        super().__init__(root, lambda each: [*scripts.get(each.key, []), DONE])


class Recording(ListPlan):
    """A list of trials that notes what it is told, and stops those with a row below 0."""

    def __init__(self, keys: str) -> None:
        super().__init__([*map(trial, keys)], [*keys])
        self.events: list[tuple[str, object]] = []

    def saw(self, *event: Any) -> bool:
        self.events.append((event[0].key, event[1].value))
        return bool(event[1].value < 0)

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        super().ended(trial, outcome)
        self.events.append((trial.key, outcome.state))


def test_trials_run_as_many_at_a_time_as_there_is_room(tmp_path: Path, capsys: Capture):
    place = InventedPlace(tmp_path, a=[Point(1, 0.1), "lost its node"])
    outcomes = run_all(tmp_path, [*map(trial, "abc")], ["first", "second", "third"], place)
    assert (outcomes, place.begun) == ([DONE] * 3, ["a", "b", "c"])
    err = capsys.readouterr().err
    assert "allo a: lost its node\n" in err
    assert "[1/3] second: finished; about 0:00:00 left\n" in err


def test_a_hopeless_trial_is_stopped_and_the_others_go_on(tmp_path: Path):
    plan = Recording("ab")
    run(tmp_path, plan, InventedPlace(tmp_path, a=[Point(1, 1.0), Point(2, -1.0), Point(3, 9.0)]))
    assert [event for key, event in plan.events if key == "a"] == [1.0, -1.0, "stopped"]
    assert plan.outcomes["b"] == DONE


def test_what_has_an_outcome_does_not_run_again(tmp_path: Path):
    diverged = Outcome("diverged", reason="loss is not finite")
    folder = folder_of(tmp_path, trial("a"))
    folder.mkdir(parents=True)
    write_outcome(folder, diverged)
    outbox = Outbox(folder / ".state" / "outbox" / "train@allo-1.sqlite")
    outbox.begin(header("k1"))
    outbox.metrics([("train/loss", 1, 0.5)])
    place, plan = InventedPlace(tmp_path), Recording("ab")
    place.watch = "loss"
    run(tmp_path, plan, place)
    assert (plan.outcomes, place.begun) == ({"a": diverged, "b": DONE}, ["b"])
    assert plan.events == [("a", 0.5), ("a", "diverged"), ("b", "finished")]


def test_equal_trials_run_once(tmp_path: Path):
    plan, place = Recording("ab"), InventedPlace(tmp_path, a=[Point(1, 1.0)])
    plan._left = iter(map(trial, "aab"))
    run(tmp_path, plan, place)
    assert place.begun == ["a", "b"]
    of_a = [event for key, event in plan.events if key == "a"]
    assert of_a == [1.0, "finished"]


def test_a_fault_of_the_place_stops_all_and_what_still_ended_is_told(tmp_path: Path):
    class Failing(InventedPlace):
        def stop(self, trial: Trial) -> None:
            last = Outcome("stopped") if trial.key == "a" else DONE
            self.running[trial.key] = trial, [OSError("another"), last]

    place = Failing(tmp_path, a=[OSError("full")], b=[Point(1, 1.0), Point(2, 1.0)])
    plan = Recording("abc")
    with pytest.raises(OSError, match="full"):
        run(tmp_path, plan, place)
    assert (place.begun, place.running, plan.outcomes) == (["a", "b"], {}, {"b": DONE})


def test_a_trial_that_cannot_begin_lets_the_others_save(tmp_path: Path):
    class Refusing(InventedPlace):
        def begin(self, trial: Trial) -> None:
            if trial.key == "b":
                raise OSError("an input is gone")
            super().begin(trial)

    place = Refusing(tmp_path, a=[Point(1, 1.0), Point(2, 1.0)])
    with pytest.raises(OSError, match="an input is gone"):
        run(tmp_path, Recording("ab"), place)
    assert (place.begun, place.running) == (["a"], {})


def test_a_signal_lets_trials_save_and_begins_none(tmp_path: Path, capsys: Capture):
    class Signalled(Recording):
        def saw(self, *_: object) -> bool:
            os.kill(os.getpid(), signal.SIGTERM)
            return False

    place, plan = InventedPlace(tmp_path, a=[Point(1, 1.0)]), Signalled("abcd")
    with pytest.raises(Interrupted, match="SIGTERM"):
        run(tmp_path, plan, place)
    assert (place.begun, place.running, plan.outcomes) == (["a", "b"], {}, {"b": DONE})
    assert "trials save their work and leave" in capsys.readouterr().err


def test_trials_that_do_not_leave_are_not_waited_for_long(tmp_path: Path, monkeypatch: Patch):
    class Deaf(InventedPlace):
        def stop(self, trial: Trial) -> None:
            self.running[trial.key] = trial, []

    monkeypatch.setattr(engine, "SAVE_SECONDS", 0.05)
    with pytest.raises(OSError, match="full"):
        run(tmp_path, Recording("ab"), Deaf(tmp_path, a=[OSError("full")]))


def test_the_time_left_is_told_by_those_that_ended_in_this_run(capsys: Capture, monkeypatch: Patch):
    moments = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    progress = Progress(5, done=2)
    progress.ended("trial 2", "finished, 0.5", best="best 0.5 (trial 2)")
    progress.ended("trial 3", "diverged", "loss is nan")
    assert capsys.readouterr().err.splitlines() == [
        "[3/5] trial 2: finished, 0.5; best 0.5 (trial 2); about 0:00:20 left",
        "[4/5] trial 3: diverged: loss is nan; about 0:00:10 left",
    ]
