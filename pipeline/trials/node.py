"""a trial on a node of a Ray cluster: what its task and that of its dataset do."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple

import psutil

from pipeline.storage.checkpoints import SLOTS
from pipeline.storage.run_key import CHECKOUT
from pipeline.trials.stages import POLL_SECONDS, Step, WatchedRows, Work, stage_environment
from pipeline.trials.storage import Storage, restore, save
from pipeline.trials.trial import USAGE, Outcome, Point, Trial
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
        for step in Work(job.trial, environment, check=partial(check_code, job)).collect(folder):
            if isinstance(step, Outcome):
                return step
            time.sleep(POLL_SECONDS)
        outs = [*(folder / "data" / job.trial.model).iterdir(), folder / USAGE]
        return {str(path.relative_to(folder)): np.fromfile(path, np.uint8) for path in outs}


def run_trial(job: Job, dataset: Files | Outcome) -> Iterator[tuple[str, Point | Outcome]]:
    """Yields all rows of a trial and its outcome, each with a name of this attempt.

    Ray reads the items of a later attempt from the index on where an earlier one was lost: so rows
    before a resumption come again.

    Raises:
        StageLost: a stage was killed, or this node has a fault.
    """
    if isinstance(dataset, Outcome):
        yield "", dataset
        return
    with scratch() as name:
        folder, stopped = Path(name), threading.Event()
        # Ray cancels a task by this signal.
        signal.signal(signal.SIGINT, lambda *_: stopped.set())
        restore(job.storage, job.trial.key, folder)
        environment = prepare_node(job, folder)
        write_files(dataset, folder / "dataset")
        work = Work(job.trial, environment, stopped.is_set, partial(check_code, job))
        rows = WatchedRows(folder, job.trial.model, job.watch)
        for event in archived(job, folder, work.train(folder, folder / "dataset", rows)):
            yield name, event


def archived(
    job: Job, folder: Path, steps: Generator[Step, None, None]
) -> Iterator[Point | Outcome]:
    """Takes the steps of a trial; stores each new checkpoint and learner meanwhile, and what there
    is before the outcome is told, or when it leaves.
    """
    stored, outcome = newest_result(folder), None
    try:
        with closing(steps):
            for step in steps:
                if isinstance(step, Point):
                    yield step
                elif isinstance(step, Outcome):
                    outcome = step
                else:
                    time.sleep(POLL_SECONDS)
                    if (newest := newest_result(folder)) != stored:
                        save(job.storage, job.trial.key, folder)
                        stored = newest
    finally:
        save(job.storage, job.trial.key, folder)
    if outcome is not None:
        yield outcome


def newest_result(folder: Path) -> int:
    """Returns when the newest complete checkpoint or learner was written; 0 if there is none."""
    patterns = [*(f".state/train@*/*/{slot}" for slot in SLOTS), "models/*"]
    paths = [path for pattern in patterns for path in folder.glob(f"{pattern}/{MANIFEST}")]
    return max((path.stat().st_mtime_ns for path in paths), default=0)


def scratch() -> TemporaryDirectory[str]:
    """Makes a folder for an attempt, and removes those of attempts that were killed here."""
    prefix = f"quatrain-trial-{socket.gethostname()}-"  # the folder may be one of many nodes
    for left in Path(gettempdir()).glob(f"{prefix}*-*"):
        if not psutil.pid_exists(int(left.name.removeprefix(prefix).split("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    return TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-")


def prepare_node(job: Job, folder: Path) -> dict[str, str]:
    """Writes the input files of a trial, and returns the variables of its stages.

    Raises:
        CodeDiffers: this node has other code than the driver.
    """
    check_code(job)
    write_files(job.files, folder)
    return stage_environment(job.cpus, job.gpus)


def check_code(job: Job) -> None:
    """Raises CodeDiffers if this node has other code than the driver had when the trial began."""
    digest = code_digest()
    if digest != job.code:
        raise CodeDiffers(
            f"node {socket.gethostname()} has other code than the driver "
            f"({digest[:12]}, not {job.code[:12]}); bring both to one commit"
        )


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
