"""a trial on a node of a Ray cluster: what its task and that of its dataset do."""

import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple, Self

import psutil

from pipeline.storage.checkpoints import SLOTS
from pipeline.storage.run_key import CHECKOUT
from pipeline.trials import stages
from pipeline.trials.storage import Storage, restore, save
from pipeline.trials.trial import USAGE, Outcome, Point, Trial, link_dataset, prepare
from quatrain.errors import QuatrainError
from quatrain.storage import folders
from quatrain.storage.folders import MANIFEST

Files = dict[str, Any]
"""Bytes of files, by their paths below a folder."""


class CodeDiffers(QuatrainError):
    """Says that a node has other code than the driver."""

    exit_code = 3


class Job(NamedTuple):
    """Holds what a node needs to know of a trial; code: digest of the driver's code."""

    trial: Trial
    files: Files
    storage: Storage
    watch: str
    cpus: int
    gpus: float
    code: str


def collect_dataset(job: Job) -> Files | Outcome:
    """Collects the dataset of a trial; returns its files, or why it cannot be collected.

    Raises:
        StageLost: the stage was killed, or this node has a fault.
    """
    import numpy as np

    with scratch() as name:
        folder = Path(name)
        environment = prepare_node(job, folder)
        refused = stages.collect(job.trial, folder, environment, lambda: False)
        if refused is not None:
            return refused
        outs = [*(folder / "data" / job.trial.model).iterdir(), folder / USAGE]
        return {str(path.relative_to(folder)): np.fromfile(path, np.uint8) for path in outs}


def run_trial(job: Job, dataset: Files | Outcome) -> Iterator[tuple[str, Point | Outcome]]:
    """Yields all rows of a trial and its outcome, each with the name of this attempt.

    Ray reads the items of a later attempt from the index on where an earlier one was lost: so rows
    before a resumption come again.

    Raises:
        StageLost: a stage was killed, or this node has a fault.
    """
    attempt = secrets.token_hex(4)
    if isinstance(dataset, Outcome):
        yield attempt, dataset
        return
    outcome = None
    with scratch() as name:
        folder = Path(name)
        restore(job.storage, job.trial.key, folder)
        environment = prepare_node(job, folder)
        write_files(dataset, folder / "dataset")
        link_dataset(job.trial, folder, folder / "dataset")
        with Archive(job.storage, job.trial.key, folder) as archive:
            # Ray cancels a task by this signal.
            signal.signal(signal.SIGINT, lambda *_: archive.stop())
            work = stages.work(job.trial, folder, job.watch, environment, archive.is_stopped)
            with closing(work):
                for event in work:
                    if isinstance(event, Outcome):
                        outcome = event
                    else:
                        yield attempt, event
    if outcome is not None:
        yield attempt, outcome


def scratch() -> TemporaryDirectory[str]:
    """Makes a folder for an attempt, and removes those of attempts that were killed here."""
    for left in Path(gettempdir()).glob("quatrain-trial-*-*"):
        if not psutil.pid_exists(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    return TemporaryDirectory(prefix=f"quatrain-trial-{os.getpid()}-")


def prepare_node(job: Job, folder: Path) -> dict[str, str]:
    """Writes what the stages of a trial read, and returns their variables.

    Raises:
        CodeDiffers: this node has other code than the driver.
    """
    digest = code_digest()
    if digest != job.code:
        raise CodeDiffers(
            f"node {socket.gethostname()} has other code than the driver "
            f"({digest[:12]}, not {job.code[:12]}); bring both to one commit"
        )
    prepare(job.trial, folder)
    write_files(job.files, folder)
    return stages.stage_environment(job.cpus, job.gpus)


def code_digest() -> str:
    """Returns the digest of all code that a trial may run, by name relative to the checkout."""
    paths = [
        path for top in ("src/quatrain", "pipeline") for path in CHECKOUT.glob(f"{top}/**/*.py")
    ]
    digests = {str(path.relative_to(CHECKOUT)): folders.file_digest(path) for path in sorted(paths)}
    return folders.digest_of(digests)


def write_files(files: Files, folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Archive:
    """Stores each new checkpoint of a trial while it works, and what there is when it leaves."""

    def __init__(self, storage: Storage, key: str, folder: Path) -> None:
        self._place = storage, key, folder
        self._stored = _results(folder)
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        save(*self._place)

    def stop(self) -> None:
        self._is_stopped = True

    def is_stopped(self) -> bool:
        """Stores a new checkpoint or learner; returns whether the trial is to leave."""
        results = _results(self._place[2])
        if results - self._stored:
            save(*self._place)
        self._stored = results
        return self._is_stopped


def _results(folder: Path) -> set[tuple[str, int]]:
    """Returns the complete checkpoints and learners, with the time of each."""
    patterns = [*(f".state/train@*/*/{slot}" for slot in SLOTS), "models/*"]
    paths = [path for pattern in patterns for path in folder.glob(f"{pattern}/{MANIFEST}")]
    return {(str(path), path.stat().st_mtime_ns) for path in paths}
