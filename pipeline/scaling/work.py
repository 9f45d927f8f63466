"""a trial's files -> its training and evaluation as child processes in a folder of its own.

The outbox of the training is the channel: its rows of the watched metric are what a schedule
compares. Nothing here imports Ray or a framework.
"""

import io
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ruamel.yaml import YAML

from pipeline.judging.scores import read_scores
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import PARENT_VARIABLE, shell_exit_code
from pipeline.scaling.records import Point
from pipeline.storage.run_key import CHECKOUT
from pipeline.storage.trained_model import FILES
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import HISTORY, SEED
from quatrain.errors import DataError
from quatrain.storage import folders

LOG = "stages.log"
OUTCOME = "outcome.json"
# Exit codes of a stage that would end so on every machine; all others are worth another try.
FINAL: dict[int, Literal["diverged", "refused", "failed"]]
FINAL = {1: "failed", 2: "refused", 3: "refused", 4: "refused", 6: "failed", 7: "diverged"}
# How long a stage may take to save and leave.
SAVE_SECONDS = 60.0
LOG_CHARACTERS = 2000


class Outcome(NamedTuple):
    """Holds how the stages of a trial ended: with scores, or with a reason."""

    state: Literal["finished", "diverged", "refused", "failed"]
    scores: Mapping[str, float | None]
    seconds: float
    reason: str = ""


class StageLost(CommandFailed):
    """Says that a stage was killed or met a fault of its machine: it may work elsewhere."""


def prepare(folder: Path, params: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Writes params.yaml and the files, by path relative to the folder of a trial."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "params.yaml").write_bytes(_to_yaml(params))


def discard_another(folder: Path, params: Mapping[str, Any]) -> None:
    """Empties the restored folder of a trial with other params: a driver that lost the ledger of
    an earlier one numbers its trials anew.
    """
    path = folder / "params.yaml"
    if not path.is_file() or path.read_bytes() != _to_yaml(params):
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def _to_yaml(params: Mapping[str, Any]) -> bytes:
    text = io.StringIO()
    YAML().dump(dict(params), text)
    return text.getvalue().encode()


def stage_environment(cpus: int, gpus: float, extra: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a stage: this code, this node's compiled programs, no store.

    A part of a GPU is also a part of its memory, which JAX would take as a whole.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "RANK" and not name.startswith(("RAY_", "DVC_", "TUNE_", "QUATRAIN_"))
    }
    shared = {
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "src"), str(CHECKOUT)]),
        "PYTHONUNBUFFERED": "1",
        "NPROC": str(cpus),
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", str(CHECKOUT / ".jax_cache")
        ),
        PARENT_VARIABLE: str(os.getpid()),
    }
    if 0 < gpus < 1:
        shared["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * gpus:.3f}"
    return {**inherited, **shared, **extra}


class StageProcess:
    """Runs one stage in a folder; its output goes to a file."""

    def __init__(self, folder: Path, verb: str, model: str, environment: Mapping[str, str]) -> None:
        self.name = f"{verb}@{model}"
        self._folder = folder
        self._log = (folder / LOG).open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"pipeline.{verb}", model],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def code(self) -> int | None:
        """Returns the exit code; None while it runs."""
        returncode = self._process.poll()
        return None if returncode is None else shell_exit_code(returncode)

    def wait(self) -> int:
        return shell_exit_code(self._process.wait())

    def reason(self) -> str:
        """Returns the last line that it printed."""
        text = (self._folder / LOG).read_text(errors="replace")[-LOG_CHARACTERS:]
        lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else f"{self.name} printed nothing"

    def end(self) -> None:
        """Lets it save and leave, and waits."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(SAVE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


class OutboxTail:
    """Reads the rows of one metric from the newest outbox of a stage, while it is written."""

    def __init__(self, folder: Path, stage: str, metric: str) -> None:
        self._folder = folder
        self._stage = stage
        self._metric = metric
        self._path: Path | None = None
        self._last_id = 0
        self.names: set[str] = set()
        """Names of all metrics that were seen."""
        self.step = 0
        """The last step of any metric of the training."""

    def read(self) -> list[Point]:
        """Returns the new rows of the metric; those before a resumption come once."""
        newest = newest_outbox(self._folder, self._stage)
        if newest is None:
            return []
        if newest != self._path:
            self._path, self._last_id, self.step = newest, 0, 0
        rows = Outbox(newest).points(HISTORY, after=self._last_id)
        self._last_id = max((row.id for row in rows), default=self._last_id)
        self.step = max((row.step for row in rows), default=self.step)
        self.names |= {row.name for row in rows if SEED not in row.name}
        return [
            Point(step=row.step, value=row.value)
            for row in rows
            if row.name == self._metric and math.isfinite(row.value)
        ]


def newest_outbox(folder: Path, stage: str) -> Path | None:
    """Returns the outbox that a stage writes now: on another type of machine it begins another."""
    paths = (folder / ".state" / "outbox").glob(f"{stage}-*.sqlite")
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)


class TrialWork:
    """Runs the stages of a trial one after another; call `advance` often.

    A folder that holds the outs of a stage already continues behind it.
    """

    def __init__(
        self, folder: Path, model: str, watch: str, environment: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._model = model
        self._environment = environment
        self._process: StageProcess | None = None
        self._started_at = time.monotonic()
        self._verbs = self._missing_verbs()
        self.tail = OutboxTail(folder, f"train@{model}", f"{HISTORY}{watch}")

    def advance(self) -> Outcome | None:
        """Starts the next stage if none runs; returns the outcome after the last one.

        Raises:
            StageLost: a stage was killed, or its machine has a fault.
        """
        if self._process is not None:
            code = self._process.code
            if code is None:
                return None
            reason = self._process.reason()
            self._process.end()
            self._process = None
            if code in FINAL:
                return Outcome(FINAL[code], {}, self.seconds(), reason)
            if code:
                raise StageLost(f"a stage ended with {code}: {reason}")
        verb = next(self._verbs, None)
        if verb is None:
            return Outcome("finished", self._scores(), self.seconds())
        self._process = StageProcess(self.folder, verb, self._model, self._environment)
        return None

    def end(self) -> None:
        """Lets the running stage save and leave."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _missing_verbs(self) -> Iterator[str]:
        verbs = ["train", "evaluate"]
        try:
            folders.load(self.folder / "models" / self._model, FILES)
            verbs.remove("train")
        except DataError:
            pass
        return iter(verbs)

    def seconds(self) -> float:
        """Returns the time since the first stage began, in this attempt."""
        return time.monotonic() - self._started_at

    def _scores(self) -> Mapping[str, float | None]:
        return read_scores(self.folder, self._model).scores


def code_digest() -> str:
    """Returns the digest of all code that a trial runs, by name relative to the checkout."""
    files = [*CHECKOUT.glob("src/quatrain/**/*.py"), *CHECKOUT.glob("pipeline/**/*.py")]
    names = {str(path.relative_to(CHECKOUT)): path for path in sorted(files)}
    return folders.digest_of({name: folders.file_digest(path) for name, path in names.items()})


def write_outcome(folder: Path, outcome: Outcome) -> None:
    folders.write_json(folder / OUTCOME, outcome._asdict())


def read_outcome(folder: Path) -> Outcome | None:
    """Returns the outcome that a trial stored; None if it did not come so far."""
    try:
        return Outcome(**folders.read_json(folder / OUTCOME))
    except (DataError, TypeError):
        return None
