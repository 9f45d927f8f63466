"""a plan of trials, a place that runs them -> their rows and outcomes, as they come.

A plan says what to try next: a study its list, a sweep what its sampler proposes, a comparison more
seeds. A place is this machine, or a Ray cluster.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from pipeline.runtime import console
from pipeline.runtime.errors import Interrupted
from pipeline.runtime.processes import on_signals
from pipeline.trials.progress import Progress
from pipeline.trials.stages import SAVE_SECONDS, work
from pipeline.trials.trial import Outcome, Point, Trial, folder_of, read_outcome

Event = Point | Outcome | str
Record = Callable[[Trial, str], None]


class Plan(Protocol):
    def next(self) -> Trial | None:
        """Returns the next trial; None if there is none to begin now: it is asked again later."""

    def saw(self, trial: Trial, point: Point) -> bool:
        """Takes a row of the watched metric; returns whether the trial is hopeless."""

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        """Takes how a trial ended; one that is to be continued by the next run is not told."""


class Place(AbstractContextManager["Place"], Protocol):
    watch: str
    """The train metric whose rows are events; none if it is empty."""

    def room(self) -> int:
        """Returns how many trials fit beside those that run."""

    def begin(self, trial: Trial) -> None:
        """Starts a trial, or continues it."""

    def events(self) -> Iterator[tuple[Trial, Event]]:
        """Yields what came since, or waits a moment: rows, outcomes, and notes for a person.

        Raises:
            Exception: a fault that is not of one trial, such as a full storage.
        """

    def stop(self, trial: Trial) -> None:
        """Lets a trial save and leave; its outcome is `stopped`."""


def run(
    root: Path, plan: Plan, place: Place, on_note: Callable[[Trial, str], None] | None = None
) -> None:
    """Runs the trials of a plan to their ends.

    A trial that has an outcome already is not run again, and equal trials run once. After a signal
    or a fault of the place all trials save their work, and the same command continues them.

    Raises:
        Interrupted: SIGTERM or Ctrl-C was received; a second Ctrl-C leaves at once.
        Exception: a fault of the place.
    """
    Run(root, plan, place, on_note or _print_note).run()


def run_all(
    root: Path,
    trials: Sequence[Trial],
    labels: Sequence[str],
    place: Place,
    record: Record | None = None,
) -> list[Outcome]:
    """Runs trials that nothing stops, says how each ended, and returns their outcomes in order.

    record: is told of each trial that has ended, with its label.

    Raises:
        as `run`.
    """
    plan = ListPlan(trials, labels, record)
    run(root, plan, place)
    return [plan.outcomes[trial.key] for trial in trials]


class ListPlan:
    """Hands out the trials of a list."""

    def __init__(
        self, trials: Sequence[Trial], labels: Sequence[str], record: Record | None = None
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._labels = dict(zip((trial.key for trial in trials), labels, strict=True))
        self._left = iter({trial.key: trial for trial in trials}.values())
        self._progress = Progress(len(self._labels))
        self._record = record

    def next(self) -> Trial | None:
        return next(self._left, None)

    def saw(self, *_: object) -> bool:
        return False

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        self.outcomes[trial.key] = outcome
        label = self._labels[trial.key]
        if self._record is not None:
            self._record(trial, label)
        self._progress.ended(label, outcome.state, outcome.reason)


class Run:
    """Runs one plan in one place."""

    def __init__(
        self, root: Path, plan: Plan, place: Place, on_note: Callable[[Trial, str], None]
    ) -> None:
        self._root = root
        self._plan = plan
        self._place = place
        self._on_note = on_note
        self._running: dict[str, list[Trial]] = {}
        self._received: int | None = None

    def run(self) -> None:
        with on_signals(self._receive):
            try:
                while self._begin() or self._running:
                    self._take_events()
                    if self._received is not None:
                        raise Interrupted(self._received)
            finally:
                self._leave()

    def _begin(self) -> bool:
        """Begins trials while there is room; returns whether there may be more later on."""
        while self._place.room() > 0:
            trial = self._plan.next()
            if trial is None:
                return False
            if trial.key in self._running:
                self._running[trial.key].append(trial)
            elif read_outcome(folder_of(self._root, trial)) is not None:
                self._recall(trial)
            else:
                self._running[trial.key] = [trial]
                self._place.begin(trial)
        return True

    def _recall(self, trial: Trial) -> None:
        """Tells what is stored of a trial that has ended."""
        for event in work(trial, folder_of(self._root, trial), self._place.watch, {}):
            if isinstance(event, Outcome):
                self._plan.ended(trial, event)
            else:
                self._plan.saw(trial, event)

    def _take_events(self) -> None:
        for trial, event in self._place.events():
            if isinstance(event, str):
                self._on_note(trial, event)
            elif isinstance(event, Outcome):
                for each in self._running.pop(trial.key):
                    self._plan.ended(each, event)
            else:
                hopeless = [self._plan.saw(each, event) for each in self._running[trial.key]]
                if any(hopeless):
                    self._place.stop(trial)

    def _leave(self) -> None:
        """Lets the trials that still run save their work, for SAVE_SECONDS at most."""
        for trials in self._running.values():
            self._place.stop(trials[0])
        deadline = time.monotonic() + SAVE_SECONDS
        while self._running and time.monotonic() < deadline:
            with suppress(Exception):  # The first fault is what is raised.
                for trial, event in self._place.events():
                    if isinstance(event, Outcome):
                        for each in self._running.pop(trial.key):
                            if event.state != "stopped":
                                self._plan.ended(each, event)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            os._exit(128 + number)
        if self._received is None:
            self._received = number
            name = signal.Signals(number).name
            console.info(f"{name}: trials save their work and leave (Ctrl-C: at once)")


def _print_note(trial: Trial, text: str) -> None:
    console.info(f"{trial.model} {trial.key}: {text}")
