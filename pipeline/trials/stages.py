"""a trial -> its stages as child processes in its folder, its rows and its outcome.

The outbox of the training is the channel: its rows of the watched metric are what a schedule
compares. Nothing here imports Ray or a framework.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal

from pipeline.judging.scores import read_scores
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import PARENT_VARIABLE, TRIAL_VARIABLE, shell_exit_code
from pipeline.storage.run_key import CHECKOUT
from pipeline.storage.trained_model import FILES
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import HISTORY, SEED
from pipeline.trials.trial import (
    Outcome,
    Point,
    Trial,
    read_outcome,
    read_usage,
    write_outcome,
    write_usage,
)
from quatrain.errors import ConfigError, DataError, QuatrainError
from quatrain.storage import folders

LOG = "stages.log"
# Exit codes of a stage that would end so on every machine; all others are worth another try.
FINAL: dict[int, Literal["diverged", "refused", "failed"]]
FINAL = {1: "failed", 2: "refused", 3: "refused", 4: "refused", 6: "failed", 7: "diverged"}
# An error of data: a stage whose code was edited while it ran ends so, too.
DATA_ERROR = 3
OUTS = {"collect": "data", "train": "models", "evaluate": "reports"}
POLL_SECONDS = 0.1
# How long a stage may take to save and leave.
SAVE_SECONDS = 60.0
LOG_CHARACTERS = 2000
# Bytes of a unit of `ru_maxrss`.
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024

IsStopped = Callable[[], bool]
Check = Callable[[], None]


def _unchecked() -> None:
    """Does nothing."""


class StageLost(CommandFailed):
    """Says that a stage was killed or met a fault of its machine: it may work elsewhere."""


class Stopped(Exception):
    """Says that a stage was asked to leave, and has saved its work."""


def work(
    trial: Trial,
    folder: Path,
    watch: str,
    environment: Mapping[str, str],
    is_stopped: IsStopped = lambda: False,
    check: Check = _unchecked,
) -> Generator[Point | Outcome, None, None]:
    """Yields every row of the watched metric from the first on, then the outcome.

    A folder continues where it is: rows before an interruption come again, so that whoever reads
    on after a lost machine misses none. The dataset lies in the folder. Checkpoints go when the
    trial has ended for good. check: raises an error where code or inputs are no longer the trial's.

    Raises:
        StageLost: a stage was killed, or its machine has a fault.
        ConfigError: training does not record the watched metric.
    """
    began = time.monotonic()
    rows = WatchedRows(folder, f"train@{trial.model}", watch)
    outcome = read_outcome(folder)
    try:
        for verb in () if outcome else missing_verbs(trial, folder):
            stage = Stage(folder, verb, trial.model, environment)
            with closing(stage.run(is_stopped, check)) as running:
                for _ in running:
                    yield from rows.read()
            outcome = stage.failure()
            if outcome is not None:
                break
    except Stopped:
        yield from rows.read()
        yield Outcome("stopped", seconds=time.monotonic() - began)
        return
    yield from rows.read()
    if outcome is None:
        outcome = Outcome("finished", read_scores(folder, trial.model).scores)
    if outcome.state == "finished":
        rows.check()
    yield end_trial(outcome, trial, folder, time.monotonic() - began)


def end_trial(outcome: Outcome, trial: Trial, folder: Path, seconds: float) -> Outcome:
    """Returns an outcome with what the stages used, and stores it, unless it is stored.

    What is refused may be mended, so the next command tries it again.
    """
    stored = read_outcome(folder)
    if stored is None:
        outcome = complete(outcome, trial, folder, seconds)
        if outcome.state != "refused":
            write_outcome(folder, outcome)
            shutil.rmtree(folder / ".state" / f"train@{trial.model}", ignore_errors=True)
    return stored or outcome


def collect(
    trial: Trial,
    folder: Path,
    environment: Mapping[str, str],
    is_stopped: IsStopped,
    check: Check = _unchecked,
) -> Outcome | None:
    """Collects the dataset of a trial in a folder of its own, unless it is there; returns an
    outcome if it cannot be collected.

    Raises:
        StageLost: the stage was killed, or its machine has a fault.
        Stopped: it was asked to leave.
    """
    try:
        folders.verify(folder / "data" / trial.model)
    except DataError:
        stage = Stage(folder, "collect", trial.model, environment)
        list(stage.run(is_stopped, check))
        return stage.failure()
    return None


def missing_verbs(trial: Trial, folder: Path) -> list[str]:
    """Returns the stages whose results are not in the folder."""
    try:
        folders.load(folder / "models" / trial.model, FILES)
    except DataError:
        return ["train", "evaluate"]
    return ["evaluate"]


def complete(outcome: Outcome, trial: Trial, folder: Path, seconds: float) -> Outcome:
    """Returns an outcome with what the stages of the folder and of its dataset used."""
    used = read_usage(folder)
    of_data = read_usage((folder / "data" / trial.model).resolve().parents[1])
    return outcome._replace(
        cpu_seconds={**of_data.cpu_seconds, **used.cpu_seconds},
        peak_memory=max(of_data.peak_memory, used.peak_memory),
        seconds=seconds,
    )


def stage_environment(cpus: int, gpus: float = 0, code: Path = CHECKOUT) -> dict[str, str]:
    """Returns the variables of a stage: the code of a checkout, compiled programs of this machine,
    no variable of Ray or DVC, and that it belongs to a trial.

    A part of a GPU is also a part of its memory, which JAX would take as a whole.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "RANK" and not name.startswith(("RAY_", "DVC_", "QUATRAIN_"))
    }
    shared = {
        "PYTHONPATH": os.pathsep.join([str(code / "src"), str(code)]),
        "PYTHONUNBUFFERED": "1",
        "NPROC": str(cpus),
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", str(CHECKOUT / ".jax_cache")
        ),
        TRIAL_VARIABLE: "1",
        PARENT_VARIABLE: str(os.getpid()),
    }
    if 0 < gpus < 1:
        shared["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * gpus:.3f}"
    return {**inherited, **shared}


class Stage:
    """Runs one stage in a folder; its output goes to a file."""

    def __init__(self, folder: Path, verb: str, model: str, environment: Mapping[str, str]) -> None:
        self.name = f"{verb}@{model}"
        self._folder = folder
        self._verb = verb
        self._model = model
        self._command = [sys.executable, "-m", f"pipeline.{verb}", model]
        self._environment = dict(environment)
        self._code = 0

    def run(self, is_stopped: IsStopped, check: Check = _unchecked) -> Generator[None, None, None]:
        """Yields while it runs. Closed or stopped, it lets the stage save and leave.

        Raises:
            Stopped: it was asked to leave before it ended.
            QuatrainError: by `check`, before it began or after it ended; what it made is removed.
        """
        check()
        with (self._folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C is for the driver, which lets its stages save.
            )
        try:
            while not self._has_ended(process, os.WNOHANG):
                if is_stopped():
                    raise Stopped
                yield
                time.sleep(POLL_SECONDS)
        finally:
            self._end(process)
        try:
            check()
        except QuatrainError:
            self._discard()
            raise

    def failure(self) -> Outcome | None:
        """Returns how a stage that would fail everywhere failed; None if it did not fail.

        Raises:
            StageLost: it was killed, or its machine has a fault.
        """
        if self._code == DATA_ERROR:
            self._discard()
        if self._code in FINAL:
            return Outcome(FINAL[self._code], reason=self._last_line())
        if self._code:
            raise StageLost(f"{self.name} ended with {self._code}: {self._last_line()}")
        return None

    def _discard(self) -> None:
        """Removes what it made: code that is not the trial's may have made it."""
        shutil.rmtree(self._folder / OUTS[self._verb] / self._model, ignore_errors=True)

    def _has_ended(self, process: "subprocess.Popen[bytes]", options: int = 0) -> bool:
        """Returns whether it has ended; then it is known what it used."""
        if process.returncode is None:
            pid, status, usage = os.wait4(process.pid, options)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self._code = shell_exit_code(process.returncode)
                seconds = usage.ru_utime + usage.ru_stime
                spent = read_usage(self._folder)
                spent = spent.plus(self._verb, seconds, usage.ru_maxrss * MEMORY_UNIT)
                write_usage(self._folder, spent)
        return process.returncode is not None

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Lets it save and leave, and waits."""
        deadline = time.monotonic() + SAVE_SECONDS
        if not self._has_ended(process, os.WNOHANG):
            process.send_signal(signal.SIGTERM)
        while not self._has_ended(process, os.WNOHANG) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if process.returncode is None:
            process.kill()
            self._has_ended(process)

    def _last_line(self) -> str:
        text = (self._folder / LOG).read_text(errors="replace")[-LOG_CHARACTERS:]
        lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else f"{self.name} printed nothing"


class WatchedRows:
    """Reads the rows of one metric from the newest outbox of a training, while it is written."""

    def __init__(self, folder: Path, stage: str, metric: str) -> None:
        self._folder = folder
        self._stage = stage
        self._metric = metric
        self._path: Path | None = None
        self._last_id = 0
        self._names: set[str] = set()

    def read(self) -> list[Point]:
        """Returns the new rows; those before a resumption come once."""
        newest = newest_outbox(self._folder, self._stage)
        if newest is None or not self._metric:
            return []
        if newest != self._path:
            self._path, self._last_id = newest, 0
        rows = Outbox(newest).points(HISTORY, after=self._last_id)
        self._last_id = max((row.id for row in rows), default=self._last_id)
        self._names |= {row.name.removeprefix(HISTORY) for row in rows if SEED not in row.name}
        return [
            Point(row.step, row.value)
            for row in rows
            if row.name == f"{HISTORY}{self._metric}" and math.isfinite(row.value)
        ]

    def check(self) -> None:
        """Raises ConfigError if a training that has ended never recorded the metric."""
        if self._metric and self._metric not in self._names:
            names = ", ".join(sorted(self._names))
            raise ConfigError(
                f"watch = {self._metric!r}: training does not record it; name one of {names}"
            )


def newest_outbox(folder: Path, stage: str) -> Path | None:
    """Returns the outbox that a stage writes now: on another type of machine it begins another."""
    paths = (folder / ".state" / "outbox").glob(f"{stage}-*.sqlite")
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)
