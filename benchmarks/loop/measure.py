"""rows of what a user waits for beside learning: this checkout and an earlier one, from nothing

Each side is a fresh clone whose commands run as a user starts them, and CPU seconds are those of
whole processes with their children. A training's own are those of its stage, less what the stage
takes when it finds its last checkpoint: start, data, saving. The peer runs in .bench/peers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.loop import works
from benchmarks.loop.goals import REVISION, goal_of
from benchmarks.rows import BEFORE, OURS, Row, Times, Unit
from pipeline.runtime.processes import COURIER_VARIABLE
from quatrain.registry import MODELS

PEER = "stable-baselines3"
PEERS = Path(".bench/peers/bin/python")
CHANGED = "allo"
"""Model of which a number is changed."""
EXPERIMENT = ("-m", "dvc", "exp", "run", "-S", "allo.train.learning_rate=9e-4", "evaluate@allo")
GAMES = ("CartPole-v1", "Acrobot-v1")
Measured = dict[tuple[str, Unit], float]


class Used(NamedTuple):
    """Holds what a process and its children took, and what it printed last."""

    cpu: float
    wall: float
    printed: str = ""


def measure(root: Path, _rounds: int) -> list[Row]:
    """Returns all rows; each is measured once, in its own processes."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            BEFORE: Side(root, REVISION, Path(folder, "before")).measure(),
            OURS: Side(root, "HEAD", Path(folder, "now")).measure(),
            PEER: of_peer(root),
        }
    rows = []
    for work, unit in sides[OURS]:
        values = {
            side: Times([numbers[work, unit]])
            for side, numbers in sides.items()
            if (work, unit) in numbers
        }
        rows.append(Row(work, unit, values, note=goal_of(work)))
    return rows


class Side:
    """Runs commands in fresh clones of a revision."""

    def __init__(self, root: Path, revision: str, folder: Path) -> None:
        self._root, self._revision, self._folder = root, revision, folder

    def measure(self) -> Measured:
        """Returns what each work takes."""
        return self.whole() | self.stages() | self.answers() | self.games()

    def clone(self, name: str) -> Path:
        folder = self._folder / name
        for command in (["clone", "-q", self._root, folder], ["checkout", "-q", self._revision]):
            place = folder if command[0] == "checkout" else self._root
            subprocess.run(["git", *command], cwd=place, check=True)
        return folder

    def whole(self) -> Measured:
        """Measures `make repro` from nothing, then a changed number to its verdict."""
        self.fresh = self.clone("repro")
        repro = run(self.fresh, "-m", "pipeline", "repro")
        self.repro_cpu = repro.cpu
        self.experiment = run(self.fresh, *EXPERIMENT)
        return {("`make repro` from nothing, wall", "s"): repro.wall}

    def stages(self) -> Measured:
        """Measures each stage alone, with a cold cache of compiled programs and with a warm one.

        Delivery to MLflow is part of `make repro`, and of an evaluation where each stage delivers.
        """
        folder = self.clone("stages")
        learning, evaluating = {}, {}
        for model in MODELS:
            used(folder, "collect", model)
            learning[model] = used(folder, "train", model) - used(folder, "train", model)
            used(folder, "evaluate", model)
            evaluating[model] = used(folder, "evaluate", model)
        warm = run(folder, "-c", works.LEARNING, CHANGED)
        beyond = self.experiment.cpu - float(warm.printed)
        shares: Measured = {
            (f"evaluate {model}, CPU over training", "share"): evaluating[model] / learning[model]
            for model in MODELS
        }
        starts: Measured = {}
        for model in MODELS:
            for _ in range(2):  # the first fills the cache of compiled programs
                start = run(folder, "-c", works.START, model, "short")
            starts[f"second start of train {model} to its first step, CPU", "s"] = start.cpu
        return {
            ("`make repro` from nothing, CPU over its trainings", "share"): self.repro_cpu
            / sum(learning.values()),
            (f"`dvc exp run -S {CHANGED}...` to its verdict, CPU beyond training", "s"): beyond,
            **shares,
            **starts,
        }

    def answers(self) -> Measured:
        """Measures `predict` of one observation, and of many at once."""
        numbers: Measured = {}
        for model in MODELS:
            printed = run(self.fresh, "-c", works.PREDICT, model).printed
            for count, seconds in json.loads(printed).items():
                work = f"predict of {int(count):,} at once, {model}, CPU of each"
                numbers[work, "us/call"] = seconds
        return numbers

    def games(self) -> Measured:
        """Measures PPO in environments of Gymnasium, everything included."""
        numbers: Measured = {}
        for game in GAMES:
            used = run(self.fresh, "-c", works.OURS, game, threads=1)
            numbers[of_game(game), "s"] = used.cpu
            numbers[f"steps in {game} beside those of training", "share"] = float(used.printed)
        return numbers


def used(folder: Path, verb: str, model: str) -> float:
    """Returns the CPU seconds of a stage that leaves delivery to this process, as `make repro` has
    it; earlier revisions deliver by themselves.
    """
    delivered = {COURIER_VARIABLE: str(os.getpid())}
    return run(folder, "-m", f"pipeline.{verb}", model, variables=delivered).cpu


def of_game(game: str) -> str:
    return f"PPO in {game}, {works.TRANSITIONS:,} transitions, CPU of everything"


def of_peer(root: Path) -> Measured:
    """Measures the same trainings by another library, with its own defaults; nothing where
    `make bench-peers` has not installed it.
    """
    python = root / PEERS
    if not python.exists():
        print(f"  {PEER}: `make bench-peers` installs it; left out", file=sys.stderr)
        return {}
    return {
        (of_game(game), "s"): run(root, "-c", works.PEER, game, python=python, threads=1).cpu
        for game in GAMES
    }


def run(
    folder: Path,
    *arguments: str,
    python: Path = Path(sys.executable),
    threads: int = 0,
    variables: Mapping[str, str] | None = None,
) -> Used:
    """Runs Python with the code of a folder.

    Raises:
        CalledProcessError: it failed; what it printed is shown before.
    """
    command = [str(python), "-W", "ignore", *arguments]
    print(f"  {' '.join(arguments[:3])[:70]}", file=sys.stderr, flush=True)
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(folder, threads), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print(printed, file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command)
    wall = time.perf_counter() - began
    return Used(used.ru_utime + used.ru_stime, wall, printed.rstrip().rpartition("\n")[2])


def environment(folder: Path, threads: int) -> Mapping[str, str]:
    """Returns the variables of a user's shell, without a tracking store or cache of another."""
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW", "JAX"))
    }
    python = Path(sys.executable).parent
    return {
        **kept,
        "PATH": f"{python}{os.pathsep}{kept.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)]),
        "OMP_WAIT_POLICY": "PASSIVE",
        **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
    }
