"""What an engine asks of a plan and of a place, and what it does when one of them fails."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipeline.runtime.errors import Interrupted
from pipeline.trials import engine
from pipeline.trials.engine import Event, ListPlan, run, run_all
from pipeline.trials.trial import Outcome, Point, Trial, folder_of, write_outcome
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.trials.stand_ins import trial

DONE = Outcome("finished", {"cosine_mean": 0.5})


class InventedPlace:
    """A place of two slots, in which trials say what they were told to."""

    watch = ""

    def __init__(self, scripts: Mapping[str, list[Event | Exception]], slots: int = 2) -> None:
        self.scripts = scripts
        self.slots = slots
        self.begun: list[str] = []
        self.running: dict[str, tuple[Trial, list[Event | Exception]]] = {}
        self.most = 0

    def room(self) -> int:
        return self.slots - len(self.running)

    def begin(self, trial: Trial) -> None:
        self.begun.append(trial.key)
        self.running[trial.key] = trial, list(self.scripts.get(trial.key, [DONE]))
        self.most = max(self.most, len(self.running))

    def events(self) -> Iterator[tuple[Trial, Event]]:
        for key, (each, events) in list(self.running.items()):
            if not events:
                continue
            event = events.pop(0)
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Outcome):
                del self.running[key]
            yield each, event

    def stop(self, trial: Trial) -> None:
        self.running[trial.key] = trial, [Outcome("stopped")]


class Recording(ListPlan):
    """A list of trials that notes what it is told, and stops those that are hopeless."""

    def __init__(self, *trials: Trial) -> None:
        super().__init__(trials, [each.key for each in trials])
        self.events_of_all: list[tuple[str, object]] = []

    def saw(self, *event: object) -> bool:
        trial, point = event
        assert isinstance(trial, Trial)
        assert isinstance(point, Point)
        self.events_of_all.append((trial.key, point.value))
        return point.value < 0

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        super().ended(trial, outcome)
        self.events_of_all.append((trial.key, outcome.state))


def test_trials_run_as_many_at_a_time_as_there_is_room(tmp_path: Path, capsys: Capture):
    trials = [trial(key) for key in "abcd"]
    place = InventedPlace({"a": [Point(1, 0.1), "lost its node", DONE]})
    outcomes = run_all(tmp_path, trials, ["first", "second", "third", "fourth"], place)
    assert (outcomes, place.begun, place.most) == ([DONE] * 4, ["a", "b", "c", "d"], 2)
    err = capsys.readouterr().err
    assert "allo a: lost its node\n" in err
    assert "[1/4] second: finished (0.0 min)\n" in err


def test_a_hopeless_trial_is_stopped_and_the_others_go_on(tmp_path: Path):
    place = InventedPlace({"a": [Point(1, 1.0), Point(2, -1.0), Point(3, 9.0), DONE]})
    plan = Recording(trial("a"), trial("b"))
    run(tmp_path, plan, place)
    assert [event for event in plan.events_of_all if event[0] == "a"] == [
        ("a", 1.0),
        ("a", -1.0),
        ("a", "stopped"),
    ]
    assert plan.outcomes["b"] == DONE


def test_what_has_an_outcome_does_not_run_again(tmp_path: Path):
    diverged = Outcome("diverged", reason="loss is not finite")
    folder = folder_of(tmp_path, trial("a"))
    folder.mkdir(parents=True)
    write_outcome(folder, diverged)
    place = InventedPlace({})
    assert run_all(tmp_path, [trial("a"), trial("b")], ["a", "b"], place) == [diverged, DONE]
    assert place.begun == ["b"]


def test_equal_trials_run_once(tmp_path: Path):
    class Twice(Recording):
        def __init__(self) -> None:
            super().__init__(trial("a"), trial("b"))
            self._left = iter([trial("a"), trial("a"), trial("b")])

    plan, place = Twice(), InventedPlace({"a": [Point(1, 1.0), DONE]})
    run(tmp_path, plan, place)
    assert place.begun == ["a", "b"]
    assert sorted(plan.events_of_all, key=str) == [
        ("a", "finished"),
        ("a", "finished"),
        ("a", 1.0),
        ("a", 1.0),
        ("b", "finished"),
    ]


def test_a_plan_without_a_trial_now_is_asked_again(tmp_path: Path):
    class Batches(Recording):
        """The second begins when the first has ended."""

        def next(self) -> Trial | None:
            return None if self.outcomes.keys() != set("ab"[: len(place.begun)]) else super().next()

    place = InventedPlace({"a": [Point(1, 1.0), DONE]})
    plan = Batches(trial("a"), trial("b"))
    run(tmp_path, plan, place)
    assert (place.begun, place.most, [*plan.outcomes]) == (["a", "b"], 1, ["a", "b"])


def test_a_place_without_room_is_waited_for(tmp_path: Path):
    class Growing(InventedPlace):
        def room(self) -> int:
            self.slots += 1
            return super().room()

    place = Growing({}, slots=-3)
    assert run_all(tmp_path, [trial("a")], ["a"], place) == [DONE]


def test_a_fault_of_the_place_stops_all_and_what_still_ended_is_told(tmp_path: Path):
    class Failing(InventedPlace):
        def stop(self, trial: Trial) -> None:
            self.running[trial.key] = trial, [OSError("another"), Outcome("stopped")]

    place = Failing({"a": [OSError("full")], "b": [Point(1, 1.0), Point(2, 1.0), DONE]})
    plan = Recording(trial("a"), trial("b"), trial("c"))
    with pytest.raises(OSError, match="full"):
        run(tmp_path, plan, place)
    assert (place.begun, place.running, plan.outcomes) == (["a", "b"], {}, {})


def test_a_signal_lets_trials_save_and_begins_none(tmp_path: Path, capsys: Capture):
    class Signalled(Recording):
        def saw(self, *_: object) -> bool:
            os.kill(os.getpid(), signal.SIGTERM)
            return False

    place = InventedPlace({"a": [Point(1, 1.0)]})
    plan = Signalled(*map(trial, "abcd"))
    with pytest.raises(Interrupted, match="SIGTERM"):
        run(tmp_path, plan, place)
    assert (place.begun, place.running) == (["a", "b"], {})
    assert plan.outcomes.keys() <= {"b"}
    assert "trials save their work and leave" in capsys.readouterr().err


def test_trials_that_do_not_leave_are_not_waited_for_long(tmp_path: Path, monkeypatch: Patch):
    class Deaf(InventedPlace):
        def stop(self, trial: Trial) -> None:
            self.running[trial.key] = trial, []

    monkeypatch.setattr(engine, "SAVE_SECONDS", 0.05)
    with pytest.raises(OSError, match="full"):
        run_all(tmp_path, [trial("a"), trial("b")], ["a", "b"], Deaf({"a": [OSError("full")]}))
