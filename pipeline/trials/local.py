"""trials -> their stages as processes of this machine, as many at a time as its cores allow."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, Queue
from typing import Self

from pipeline.runtime.errors import CommandFailed, LockHeld
from pipeline.runtime.processes import core_count, folder_lock
from pipeline.trials import stages
from pipeline.trials.engine import Event
from pipeline.trials.stages import POLL_SECONDS, StageLost, Stopped
from pipeline.trials.trial import (
    Outcome,
    Point,
    Trial,
    check_current,
    dataset_folder,
    folder_of,
    link_dataset,
    prepare,
)
from quatrain.nvidia import gpu_count

# How long another command's trial of the same key is waited for at a time.
LOCK_SECONDS = 1.0


class Machine:
    """Runs trials on this machine; each has a thread that follows its stages.

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
        self._cpus = cpus
        self._gpus = gpus
        self._retries = retries
        self._devices = _devices(gpus) if gpus else []
        slots = _slots(cpus, cores or core_count())
        self._free = list(range(min(slots, len(self._devices)) if gpus else slots))
        self._slots: dict[str, int] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._stopped: dict[str, threading.Event] = {}
        self._events: Queue[tuple[Trial, Event | Exception]] = Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stopped in self._stopped.values():
            stopped.set()
        for thread in self._threads.values():
            thread.join()

    def room(self) -> int:
        return len(self._free)

    def begin(self, trial: Trial) -> None:
        self._slots[trial.key] = self._free.pop(0)
        self._stopped[trial.key] = threading.Event()
        thread = threading.Thread(target=self._follow, args=(trial,), name=trial.key)
        self._threads[trial.key] = thread
        thread.start()

    def events(self) -> Iterator[tuple[Trial, Event]]:
        """Yields what the trials' threads tell.

        Raises:
            Exception: what one of them met that is not of its trial.
        """
        timeout = POLL_SECONDS
        with suppress(Empty):
            while True:
                trial, event = self._events.get(timeout=timeout)
                timeout = 0
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Outcome):
                    self._free.append(self._slots.pop(trial.key))
                yield trial, event

    def stop(self, trial: Trial) -> None:
        self._stopped[trial.key].set()

    def _follow(self, trial: Trial) -> None:
        """Runs a trial, again if its stage was lost; passes each row on once."""
        passed_on = 0
        lost = 0
        while True:
            try:
                for event in islice(self._run(trial), passed_on, None):
                    self._events.put((trial, event))
                    passed_on += 1
                return
            except StageLost as error:
                lost += 1
                if self._stopped[trial.key].is_set():
                    self._events.put((trial, Outcome("stopped")))
                    return
                if lost > self._retries:
                    self._events.put((trial, Outcome("failed", reason=str(error))))
                    return
                self._events.put((trial, f"{error}; it starts again"))
            except Exception as error:
                self._events.put((trial, error))
                self._events.put((trial, Outcome("stopped")))
                return

    def _run(self, trial: Trial) -> Iterator[Point | Outcome]:
        folder, dataset = folder_of(self._root, trial), dataset_folder(self._root, trial)
        is_stopped = self._stopped[trial.key].is_set
        environment = stages.stage_environment(self._cpus, self._gpus)
        if self._devices:
            environment["CUDA_VISIBLE_DEVICES"] = self._devices[self._slots[trial.key]]
        check = partial(check_current, self._root, trial)
        try:
            with _locked(dataset, is_stopped):
                prepare(trial, dataset)
                refused = stages.collect(trial, dataset, environment, is_stopped, check)
            if refused is not None:
                yield refused
                return
            with _locked(folder, is_stopped):
                prepare(trial, folder)
                link_dataset(trial, folder, dataset)
                yield from stages.work(trial, folder, self.watch, environment, is_stopped, check)
        except Stopped:
            yield Outcome("stopped")


def _devices(gpus: float) -> list[str]:
    """Returns the GPUs of each trial that runs at a time, as CUDA_VISIBLE_DEVICES has them.

    Raises:
        CommandFailed: this process has fewer than one trial needs.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = visible.split(",") if visible else list(map(str, range(gpu_count())))
    if gpus > min(len(devices), gpu_count()):
        raise CommandFailed(
            f"a trial needs {gpus:g} GPUs, and this machine offers {gpu_count()}; set `gpus: 0`, "
            "or name a cluster by --address"
        )
    if gpus < 1:
        return devices * int(1 / gpus)
    count = int(gpus)
    starts = range(0, len(devices) - count + 1, count)
    return [",".join(devices[start : start + count]) for start in starts]


def _slots(cpus: int, cores: int) -> int:
    """Returns how many trials have cores at a time.

    Raises:
        CommandFailed: not even one has.
    """
    if cpus > cores:
        raise CommandFailed(
            f"a trial needs {cpus} CPUs, and this machine offers {cores}; "
            "lower `cpus`, or name a cluster by --address"
        )
    return cores // cpus


@contextmanager
def _locked(folder: Path, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Locks a folder that another command may be at work in; waits for it.

    Raises:
        Stopped: the trial was asked to leave meanwhile.
    """
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder_lock(folder, LOCK_SECONDS))
                break
            except LockHeld:
                if is_stopped():
                    raise Stopped from None
        yield
