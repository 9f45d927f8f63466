"""trials -> their stages as processes of this machine, as many at a time as its cores allow."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.runtime.errors import CommandFailed, LockHeld
from pipeline.runtime.processes import core_count, folder_lock
from pipeline.trials.engine import Event, Place
from pipeline.trials.stages import (
    POLL_SECONDS,
    StageLost,
    Step,
    WatchedRows,
    Work,
    code_variables,
    stage_environment,
)
from pipeline.trials.trial import Outcome, Trial, check_current, dataset_folder, folder_of
from quatrain.nvidia import gpu_count


@dataclass
class Running:
    """Holds a trial, the GPUs that it has, what it tells, and whether it is to save and leave."""

    trial: Trial
    gpus: str
    steps: Generator[Step | str, None, None]
    is_stopped: bool = False


class Machine(Place):
    """Runs trials on this machine, all from one thread.

    cpus, gpus: what a trial takes; a part of a GPU shares it. retries: how often a trial whose
    stage was killed begins again. cores: those of this machine if it is None.

    Raises:
        CommandFailed: one trial needs more than there is.
    """

    def __init__(
        self,
        root: Path,
        cpus: int = 1,
        gpus: float = 0,
        *,
        watch: str = "",
        retries: int = 0,
        cores: int | None = None,
    ) -> None:
        self.watch = watch
        self._root = root
        self._retries = retries
        self._environment = stage_environment(cpus, gpus)
        self._free = slots(cpus, gpus, cores or core_count())
        self._running: dict[str, Running] = {}
        self._refused: dict[Path, Outcome] = {}

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            running.steps.close()

    def room(self) -> int:
        return len(self._free)

    def begin(self, trial: Trial) -> None:
        gpus = self._free.pop(0)
        self._running[trial.key] = Running(trial, gpus, self._follow(trial, gpus))

    def stop(self, trial: Trial) -> None:
        self._running[trial.key].is_stopped = True

    def events(self) -> Iterator[tuple[Trial, Event]]:
        """Waits a moment, and yields what trials have told meanwhile.

        Raises:
            Exception: what one of them met that is not of its trial.
        """
        time.sleep(POLL_SECONDS)
        for running in [*self._running.values()]:
            # One that raised an error has no more steps.
            while (event := next(running.steps, Outcome("stopped"))) is not None:
                if isinstance(event, Outcome):
                    running.steps.close()  # which frees its folder for others
                    self._free.append(self._running.pop(running.trial.key).gpus)
                yield running.trial, event
                if isinstance(event, Outcome):
                    break

    def _follow(self, trial: Trial, gpus: str) -> Generator[Step | str, None, None]:
        """Takes the steps of a trial, again where its stage was lost."""
        running = self._running[trial.key]
        variables = {"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}
        if trial.checkout is not None:
            variables |= code_variables(trial.checkout)
        check = partial(check_current, self._root, trial)
        work = Work(trial, self._environment | variables, lambda: running.is_stopped, check)
        rows = WatchedRows(folder_of(self._root, trial), trial.model, self.watch)
        for left in reversed(range(self._retries + 1)):
            try:
                yield from self._attempt(work, rows)
                return
            except StageLost as error:
                yield f"{error}; it starts again" if left else Outcome("failed", reason=str(error))

    def _attempt(self, work: Work, rows: WatchedRows) -> Iterator[Step]:
        folder, dataset = folder_of(self._root, work.trial), dataset_folder(self._root, work.trial)
        for step in locked(dataset, work.is_stopped, self._collect(work, dataset)):
            yield step
            if step is not None:
                return
        yield from locked(folder, work.is_stopped, work.train(folder, dataset, rows))

    def _collect(self, work: Work, dataset: Path) -> Iterator[Step]:
        """Collects a dataset; what is refused of it holds for all trials that share it."""
        if dataset in self._refused:
            yield self._refused[dataset]
            return
        for step in work.collect(dataset):
            if isinstance(step, Outcome) and step.state != "stopped":
                self._refused[dataset] = step
            yield step


def slots(cpus: int, gpus: float, cores: int) -> list[str]:
    """Returns the GPUs of each trial that runs at a time, as CUDA_VISIBLE_DEVICES has them.

    Raises:
        CommandFailed: there is no room for even one.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else map(str, range(gpu_count()))
    devices = [*names][: gpu_count()] if gpus else []
    if cpus > cores or gpus > len(devices):
        raise CommandFailed(
            f"a trial needs {cpus} CPUs and {gpus:g} GPUs, and this machine offers {cores} and "
            f"{gpu_count()}; lower `threads`, or a sweep's `cpus` or `gpus`, or name a cluster by "
            "--address"
        )
    if gpus < 1:
        shares = devices * int(1 / gpus) if gpus else [""] * cores
    else:
        count = int(gpus)
        starts = range(0, len(devices) - count + 1, count)
        shares = [",".join(devices[start : start + count]) for start in starts]
    return shares[: cores // cpus]


def locked(folder: Path, is_stopped: Callable[[], bool], steps: Iterator[Step]) -> Iterator[Step]:
    """Takes steps when no other command is at work in the folder."""
    while not is_stopped():
        with suppress(LockHeld), folder_lock(folder, patience_seconds=0):
            yield from steps
            return
        yield None
    yield Outcome("stopped")
