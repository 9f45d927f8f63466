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
from pipeline.trials.stages import SAVE_SECONDS, WatchedRows
from pipeline.trials.trial import Outcome, Point, Trial, folder_of, read_outcome

Event = Point | Outcome | str
Record = Callable[[Trial, str], None]


class Plan(Protocol):
    def next(self) -> Trial | None:
        """Returns the next trial; None if there is none to begin now: it is asked again later."""

    def saw(self, trial: Trial, point: Point) -> bool:
        """Takes a row of the watched metric; returns whether the trial is hopeless."""

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        """Takes how a trial and its equals ended; what the next run continues is not told."""


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


def run(root: Path, plan: Plan, place: Place) -> None:
    """Runs the trials of a plan to their ends.

    A trial that has an outcome already is not run again, and equal trials run once. After a signal
    or a fault of the place all trials save their work, and the same command continues them.

    Raises:
        Interrupted: SIGTERM or Ctrl-C was received; a second Ctrl-C leaves at once.
        Exception: a fault of the place.
    """
    running: dict[str, Trial] = {}
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            os._exit(128 + number)
        if not received:
            name = signal.Signals(number).name
            console.info(f"{name}: trials save their work and leave (Ctrl-C: at once)")
        received.append(number)

    with on_signals(receive):
        try:
            while begin(root, plan, place, running) or running:
                take_events(plan, place, running)
                if received:
                    raise Interrupted(received[0])
        finally:
            leave(plan, place, running)


def begin(root: Path, plan: Plan, place: Place, running: dict[str, Trial]) -> bool:
    """Begins trials while there is room; returns whether there may be more later on."""
    while place.room() > 0:
        trial = plan.next()
        if trial is None:
            return False
        folder = folder_of(root, trial)
        if trial.key in running:
            continue
        if (outcome := read_outcome(folder)) is None:
            place.begin(trial)
            running[trial.key] = trial
            continue
        for point in WatchedRows(folder, trial.model, place.watch).read():
            plan.saw(trial, point)
        plan.ended(trial, outcome)
    return True


def take_events(plan: Plan, place: Place, running: dict[str, Trial]) -> None:
    for trial, event in place.events():
        if isinstance(event, str):
            console.info(f"{trial.model} {trial.key}: {event}")
        elif isinstance(event, Outcome):
            del running[trial.key]
            plan.ended(trial, event)
        elif plan.saw(trial, event):
            place.stop(trial)


def leave(plan: Plan, place: Place, running: dict[str, Trial]) -> None:
    """Lets the trials that still run save their work, for SAVE_SECONDS at most."""
    for trial in running.values():
        place.stop(trial)
    deadline = time.monotonic() + SAVE_SECONDS
    while running and time.monotonic() < deadline:
        with suppress(Exception):  # The first fault is what is raised.
            for trial, event in place.events():
                if isinstance(event, Outcome):
                    del running[trial.key]
                    if event.state != "stopped":
                        plan.ended(trial, event)


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
