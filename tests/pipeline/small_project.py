"""A project in a folder of its own whose stages take seconds; how to run, kill and compare them."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

from matplotlib.figure import Figure
from ruamel.yaml import YAML

from pipeline.runtime.command import run_guarded
from pipeline.runtime.processes import Signals
from pipeline.runtime.stage import Stage, run_measured
from pipeline.stages.collect import collect
from pipeline.stages.evaluate import evaluate
from pipeline.stages.train import train
from pipeline.storage.params_file import read_params
from pipeline.tracking.outbox import Outbox
from quatrain.presets import parse
from quatrain.registry import load
from quatrain.storage import folders
from quatrain.validation import overlaid
from tests.conftest import QUICK, ROOT, SMALL
from tests.pipeline.fixture_types import Capture, Patch

NOBODY = "http://127.0.0.1:1"
"""A tracking server that refuses at once."""
YIELDS = 12
BODIES: dict[str, Callable[[Stage, Signals], str]]
BODIES = {"collect": collect, "train": train, "evaluate": evaluate}
OUTS = ("data", "models", "reports")


@cache
def shared_folder() -> Path:
    """Returns a folder for what the tests of this process share; it goes with the process."""
    path = Path(tempfile.mkdtemp(prefix="quatrain-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Ended(NamedTuple):
    """How a process ended, and what it said on stderr."""

    code: int
    lines: list[str]

    @property
    def said(self) -> str:
        """The line of the failure, which is the last one; tracking adds its own before it."""
        assert not [line for line in self.lines if "Traceback" in line], "\n".join(self.lines)
        printed = [line for line in self.lines if "[exit " in line]
        assert printed == self.lines[-1:]
        return printed[0]


class Pretended(Signals):
    """A signal that comes when the stage has asked `after` times; installs no handler."""

    def __init__(self, number: int | None = None, after: int = 0) -> None:
        self._number, self._left = number, after

    @property
    def received(self) -> int | None:  # type: ignore[override]
        self._left -= 1
        return self._number if self._left < 0 else None


class Project:
    """params.yaml, inputs and baselines, and what the stages make of one model."""

    def __init__(self, root: Path, model: str = "allo") -> None:
        self.root, self.model = root, model
        self.data, self.weights, self.reports = (root / out / model for out in OUTS)

    @classmethod
    def create(cls, root: Path, model: str = "allo", code: bool = False) -> "Project":
        """With a checkpoint at each yield; with a copy of the code where processes run in it."""
        for name in ("inputs", "baselines", "presets", *(("src", "pipeline") if code else ())):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "params.yaml", root)
        project = cls(root, model)
        quick = overlaid(SMALL[model], QUICK[model])
        project.choose({"checkpoint_seconds": 0, model: quick})
        return project

    def name(self, verb: str) -> str:
        return f"{verb}@{self.model}"

    def steps(self, yields: int = YIELDS) -> int:
        """Where so many yields end."""
        config = getattr(read_params(self.root), self.model)
        assert config.train.steps == YIELDS * config.train.record_every
        return yields * config.train.record_every

    def choose(self, overlay: dict[str, Any]) -> None:
        """Change some values of params.yaml."""
        path = self.root / "params.yaml"
        selected = overlaid(parse(path), overlay)
        with path.open("w") as file:
            YAML().dump(selected, file)

    def copied(self, root: Path) -> "Project":
        shutil.copytree(self.root, root)
        return Project(root, self.model)

    def hashes(self, *outs: str) -> dict[str, str]:
        """sha256 of every file that DVC would hash."""
        paths = [path for out in outs or OUTS for path in sorted((self.root / out).rglob("*"))]
        return {
            str(path.relative_to(self.root)): sha256(path.read_bytes()).hexdigest()
            for path in paths
            if path.is_file()
        }

    def history_steps(self) -> list[int]:
        text = folders.load(self.weights).contents["history.csv"]
        return [int(line.partition(",")[0]) for line in text.splitlines()[1:]]

    def outboxes(self, verb: str) -> list[Outbox]:
        paths = (self.root / ".state" / "outbox").glob(f"{self.name(verb)}-*.sqlite")
        return [Outbox(path) for path in sorted(paths)]

    def statuses(self, verb: str) -> list[str]:
        """How each of its outboxes ends; RUNNING without an end."""
        ends = [outbox.record("end") for outbox in self.outboxes(verb)]
        return [end.body if end else "RUNNING" for end in ends]

    def call(self, verb: str, signals: Signals | None = None) -> int:
        """Run a verb in this process, where pytest may break what it stands on; its exit code."""
        stage = Stage(verb, self.model, self.root, read_params(self.root))
        body, signals = BODIES[verb], signals or Pretended()

        def work() -> None:
            run_measured(stage, body, signals)

        return run_guarded(stage.name, work)

    def start(self, *command: str, **environment: str) -> "subprocess.Popen[str]":
        """`python -m pipeline.VERB MODEL`, or other arguments, in a process that signals reach."""
        arguments = ("-m", f"pipeline.{command[0]}", self.model) if len(command) == 1 else command
        values = os.environ | {"PYTHONPATH": "src", "MLFLOW_TRACKING_URI": NOBODY} | environment
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        command = (sys.executable, *arguments)
        return subprocess.Popen(command, cwd=self.root, env=values, text=True, **pipes)

    def run(self, *command: str, **environment: str) -> Ended:
        """The same, to its end."""
        return ended(self.start(*command, **environment))


def surround(patch: Patch, project: Project) -> None:
    """For `call`: no tracking server, one quick picture, all modules loaded that a key names."""
    assert load(project.model).evaluate
    patch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    patch.setattr(load(project.model).plots, "plots", lambda *_: {"empty": Figure(figsize=(1, 1))})
    patch.chdir(project.root)


def ended(process: "subprocess.Popen[str]", before: list[str] | None = None) -> Ended:
    """Wait for it."""
    with process:
        assert process.stderr is not None
        lines = [*(before or []), *process.stderr.read().splitlines()]
    return Ended(process.returncode, lines)


def lines_until(stream: IO[str] | None, pattern: str) -> list[str]:
    """What it says up to the first line with `pattern`."""
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"{pattern!r} was never said:\n" + "\n".join(lines))


def interrupted(process: "subprocess.Popen[str]", number: signal.Signals, pattern: str) -> Ended:
    """Send a signal when a line has `pattern`, then wait."""
    before = lines_until(process.stderr, pattern)
    process.send_signal(number)
    return ended(process, before)


def last_line(capsys: Capture) -> str:
    """Of what was said since the last look."""
    return capsys.readouterr().err.splitlines()[-1]


def flip_bit(path: Path) -> None:
    """Turn one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def orphans(project: Project) -> list[int]:
    """Processes that still work in the project."""

    def works(process: Path) -> bool:
        with suppress(OSError):
            return (process / "cwd").readlink() == project.root
        return False

    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if works(process)]
