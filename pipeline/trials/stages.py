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
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.judging.scores import read_scores
from pipeline.runtime.costs import MEMORY_UNIT
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import PARENT_VARIABLE, TRIAL_VARIABLE, shell_exit_code
from pipeline.storage.run_key import CHECKOUT
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import HISTORY, SEED
from pipeline.trials.trial import (
    Outcome,
    Point,
    Trial,
    add_usage,
    link_dataset,
    prepare,
    read_outcome,
    usage_of,
    write_outcome,
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
# How often a stage is looked at, by whoever takes the steps of a trial.
POLL_SECONDS = 0.1
# How long a stage may take to save and leave.
SAVE_SECONDS = 60.0
# Of a reason, at most.
REASON_CHARACTERS = 1000

Step = Point | Outcome | None
"""What a trial tells; None while it is at work, so that its caller waits a moment."""


class StageLost(CommandFailed):
    """Says that a stage was killed or met a fault of its machine: it may work elsewhere."""


class Work(NamedTuple):
    """Runs the stages of a trial that are missing; a folder continues where it is.

    environment: variables of the stages. is_stopped: whether they are to save and leave, as they do
    when what a method yields is closed. check: raises an error where code or inputs are no longer
    the trial's.
    """

    trial: Trial
    environment: Mapping[str, str]
    is_stopped: Callable[[], bool] = lambda: False
    check: Callable[[], None] = lambda: None

    def collect(self, dataset: Path) -> Generator[Step, None, None]:
        """Collects the trial's dataset in a folder; yields an outcome if that does not succeed.

        Raises:
            StageLost: the stage was killed, or its machine has a fault.
        """
        prepare(self.trial, dataset)
        outcome = yield from self._run("collect", dataset, list)
        if outcome is not None:
            yield outcome

    def train(
        self, folder: Path, dataset: Path, rows: "WatchedRows"
    ) -> Generator[Step, None, None]:
        """Trains and evaluates in a folder; yields the new rows, then the outcome, which is stored
        there if it stays so. The checkpoints of one that has finished go then.

        Raises:
            StageLost: a stage was killed, or its machine has a fault.
            ConfigError: training does not record the watched metric.
        """
        began = time.monotonic()
        outcome = stored = read_outcome(folder)
        if stored is None:
            prepare(self.trial, folder)
            link_dataset(self.trial, folder, dataset)
            for verb in ("train", "evaluate"):
                outcome = outcome or (yield from self._run(verb, folder, rows.read))
        yield from rows.read()
        if outcome is None:
            rows.check()
            outcome = Outcome("finished", read_scores(folder, self.trial.model).scores)
        if stored is None:
            used = usage_of(dataset) | usage_of(folder)
            outcome = outcome._replace(
                cpu_seconds={verb: seconds for verb, (seconds, _) in used.items()},
                peak_memory=max((memory for _, memory in used.values()), default=0),
                seconds=time.monotonic() - began,
            )
            if outcome.state in ("finished", "diverged"):
                write_outcome(folder, outcome)
            if outcome.state == "finished":
                remove_checkpoints(self.trial, folder)
        yield outcome

    def _run(
        self, verb: str, folder: Path, read_rows: Callable[[], list[Point]]
    ) -> Generator[Point | None, None, Outcome | None]:
        """Runs a stage unless its result is there; returns an outcome if it does not succeed.

        What was made while `check` holds no longer, or by code that was edited meanwhile, is
        removed.
        """
        out = folder / OUTS[verb] / self.trial.model
        with suppress(DataError):
            folders.verify(out)
            return None
        if self.is_stopped():
            return Outcome("stopped")
        self.check()
        stage = Stage(verb, self.trial.model, folder, self.environment)
        try:
            while stage.is_running():
                if self.is_stopped():
                    stage.leave()
                yield from read_rows()
                yield None
        finally:
            stage.end()
        try:
            self.check()
        except QuatrainError:
            shutil.rmtree(out, ignore_errors=True)
            raise
        if stage.code == DATA_ERROR:
            shutil.rmtree(out, ignore_errors=True)
        return Outcome("stopped") if stage.code and self.is_stopped() else stage.failure()


def stage_environment(cpus: int, gpus: float = 0) -> dict[str, str]:
    """Returns the variables of a stage: this checkout's code, compiled programs of this machine, no
    variable of Ray or DVC, and that it belongs to a trial.

    A part of a GPU is also a part of its memory, which JAX would take as a whole.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "RANK" and not name.startswith(("RAY_", "DVC_", "QUATRAIN_"))
    }
    shared = {
        **code_variables(CHECKOUT),
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


def code_variables(checkout: Path) -> dict[str, str]:
    """Returns the variables by which a process runs the code of a checkout."""
    return {"PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout)])}


class Stage:
    """Runs a stage in a folder, where its output goes to a file.

    code: how it ended, as a shell has it; None before.
    """

    def __init__(self, verb: str, model: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.code: int | None = None
        self._name = f"{verb}@{model}"
        self._verb = verb
        self._folder = folder
        self._killed_at = math.inf
        with (folder / LOG).open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"pipeline.{verb}", model],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C is for the driver, which lets its stages save.
            )

    def is_running(self) -> bool:
        """Returns whether it has not ended; notes what it used when it has."""
        if self.code is None:
            pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.code = shell_exit_code(self._process.returncode)
                seconds = used.ru_utime + used.ru_stime
                add_usage(self._folder, self._verb, seconds, used.ru_maxrss * MEMORY_UNIT)
            elif time.monotonic() > self._killed_at:
                os.kill(self._process.pid, signal.SIGKILL)
        return self.code is None

    def leave(self) -> None:
        """Lets it save and leave, for SAVE_SECONDS at most."""
        if self._killed_at == math.inf:
            self._killed_at = time.monotonic() + SAVE_SECONDS
            os.kill(self._process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Waits until it has left."""
        while self.is_running():
            self.leave()
            time.sleep(POLL_SECONDS)

    def failure(self) -> Outcome | None:
        """Returns how it would fail everywhere; None if it succeeded.

        Raises:
            StageLost: it was killed, or its machine has a fault.
        """
        if not self.code:
            return None
        printed = (self._folder / LOG).read_bytes()[self._log_begins :]
        reason = last_line(printed.decode(errors="replace"))
        if self.code not in FINAL:
            raise StageLost(f"{self._name} ended with {self.code}: {reason}")
        return Outcome(FINAL[self.code], reason=reason)


def last_line(text: str) -> str:
    """Returns the last line that was printed, where a failure has its reason."""
    lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1].strip()[:REASON_CHARACTERS] if lines else "nothing was printed"


def remove_checkpoints(trial: Trial, folder: Path) -> None:
    shutil.rmtree(folder / ".state" / f"train@{trial.model}", ignore_errors=True)


class WatchedRows:
    """Reads the rows of one metric from the newest outbox of a training, while it is written."""

    def __init__(self, folder: Path, model: str, metric: str) -> None:
        self._outboxes = folder / ".state" / "outbox"
        self._pattern = f"train@{model}-*.sqlite"
        self._metric = metric
        self._path: Path | None = None
        self._last_id = 0

    def read(self) -> list[Point]:
        """Returns the new rows; those before a resumption come once.

        On another type of machine a training begins another outbox.
        """
        paths = self._outboxes.glob(self._pattern)
        newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None or not self._metric:
            return []
        if newest != self._path:
            self._path, self._last_id = newest, 0
        name = f"{HISTORY}{self._metric}"
        rows = Outbox(newest).points(name, after=self._last_id)
        self._last_id = max((row.id for row in rows), default=self._last_id)
        return [
            Point(row.step, row.value)
            for row in rows
            if row.name == name and math.isfinite(row.value)
        ]

    def check(self) -> None:
        """Raises ConfigError if a training that has ended never recorded the metric."""
        recorded = Outbox(self._path).history(HISTORY) if self._path else [self._metric]
        if self._metric not in recorded:
            names = ", ".join(sorted(name for name in recorded if SEED not in name))
            raise ConfigError(
                f"watch = {self._metric!r}: training does not record it; name one of {names}"
            )
