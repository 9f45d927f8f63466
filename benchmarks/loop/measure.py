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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.loop import works
from benchmarks.loop.goals import REVISION, goal_of
from benchmarks.rows import BEFORE, OURS, PEER, Row, Times, Unit
from pipeline.runtime.processes import COURIER_VARIABLE
from quatrain.registry import MODELS

PEERS = Path(".bench/peers/bin/python")
CHANGED = "allo"
"""Model of which a number is changed."""
EXPERIMENT = ("-m", "dvc", "exp", "run", "-S", "allo.train.learning_rate=9e-4")
GAMES = ("CartPole-v1", "Acrobot-v1")
REPEATS = 3
"""Of what takes seconds."""


class Measure(NamedTuple):
    """Holds what one work took one side."""

    work: str
    unit: Unit
    value: float


class Used(NamedTuple):
    """Holds what a process and its children took, and what it printed last."""

    cpu: float
    wall: float
    printed: str = ""


def measure(root: Path, _rounds: int) -> list[Row]:
    """Returns all rows. The sides take turns after each work, for a shared machine gets slower and
    faster; what takes seconds is repeated.
    """
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            BEFORE: Side(root, REVISION, Path(folder, "before")).measure(),
            OURS: Side(root, "HEAD", Path(folder, "now")).measure(),
        }
        numbers: dict[tuple[str, Unit], dict[str, list[float]]] = {}
        for turn in zip(*sides.values(), strict=True):
            for side, (work, unit, value) in zip(sides, turn, strict=True):
                numbers.setdefault((work, unit), {}).setdefault(side, []).append(value)
    for work, unit, value in of_peer(root):
        numbers[work, unit].setdefault(PEER, []).append(value)
    return [
        Row(*key, {side: Times(values) for side, values in of_sides.items()}, note=goal_of(key[0]))
        for key, of_sides in numbers.items()
    ]


class Side:
    """Runs commands in fresh clones of a revision."""

    def __init__(self, root: Path, revision: str, folder: Path) -> None:
        self._root, self._revision, self._folder = root, revision, folder

    def measure(self) -> Iterator[Measure]:
        """Yields what each work takes."""
        self.repro = self.clone("repro")
        self.alone = self.clone("alone")
        yield from self.whole()
        yield from self.experiment()
        for measured in (self.starts, self.answers):
            for model in MODELS:
                yield from measured(model)
        yield from self.games()

    def clone(self, name: str) -> Path:
        folder = self._folder / name
        for command in (["clone", "-q", self._root, folder], ["checkout", "-q", self._revision]):
            place = folder if command[0] == "checkout" else self._root
            subprocess.run(["git", *command], cwd=place, check=True)
        return folder

    def whole(self) -> Iterator[Measure]:
        """Measures `make repro` from nothing, and each stage alone; the first training and
        evaluation of a model compile.
        """
        repro = run(self.repro, "-m", "pipeline", "repro")
        yield Measure("`make repro` from nothing, wall", "s", repro.wall)
        trainings = 0.0
        for model in MODELS:
            used(self.alone, "collect", model)
            training = used(self.alone, "train", model) - used(self.alone, "train", model)
            trainings += training
            used(self.alone, "evaluate", model)
            for _ in range(REPEATS):
                share = used(self.alone, "evaluate", model) / training
                yield Measure(f"evaluate {model}, CPU over training", "share", share)
        share = repro.cpu / trainings
        yield Measure("`make repro` from nothing, CPU over its trainings", "share", share)

    def experiment(self) -> Iterator[Measure]:
        """Measures what a changed number takes beyond its training: once that has ended, the same
        stages again, of which the training then only finds its last checkpoint.
        """
        run(self.repro, *EXPERIMENT, f"evaluate@{CHANGED}")
        stages = [f"{verb}@{CHANGED}" for verb in ("train", "evaluate")]
        for _ in range(REPEATS):
            again = run(self.repro, *EXPERIMENT, "--force", "--single-item", *stages)
            yield Measure(
                f"`dvc exp run -S {CHANGED}...` to its verdict, CPU beyond training", "s", again.cpu
            )

    def starts(self, model: str) -> Iterator[Measure]:
        """Measures a training up to its first step, with a warm cache of compiled programs."""
        run(self.alone, "-c", works.START, model)
        for _ in range(REPEATS):
            start = run(self.alone, "-c", works.START, model)
            yield Measure(f"second start of train {model} to its first step, CPU", "s", start.cpu)

    def answers(self, model: str) -> Iterator[Measure]:
        """Measures `predict` of one observation, and of many at once."""
        for _ in range(REPEATS):
            printed = run(self.alone, "-c", works.PREDICT, model).printed
            for count, seconds in json.loads(printed).items():
                work = f"predict of {int(count):,} at once, {model}, CPU of each"
                yield Measure(work, "us/call", seconds)

    def games(self) -> Iterator[Measure]:
        """Measures PPO in environments of Gymnasium, everything included."""
        for game in GAMES:
            for _ in range(REPEATS):
                fit = run(self.repro, "-c", works.OURS, game, threads=1)
                yield Measure(of_game(game), "s", fit.cpu)
            share = float(fit.printed)
            yield Measure(f"steps in {game} beside those of training", "share", share)


def used(folder: Path, verb: str, model: str) -> float:
    """Returns the CPU seconds of a stage that leaves delivery to this process, as `make repro` has
    it; earlier revisions deliver by themselves.
    """
    delivered = {COURIER_VARIABLE: str(os.getpid())}
    return run(folder, "-m", f"pipeline.{verb}", model, variables=delivered).cpu


def of_game(game: str) -> str:
    return f"PPO in {game}, {works.TRANSITIONS:,} transitions, CPU of everything"


def of_peer(root: Path) -> Iterator[Measure]:
    """Measures the same trainings by another library, with its own defaults; nothing where
    `make bench-peers` has not installed it.
    """
    python = root / PEERS
    if not python.exists():
        print(f"  {PEER}: `make bench-peers` installs it; left out", file=sys.stderr)
        return
    for game in GAMES:
        for _ in range(REPEATS):
            training = run(root, "-c", works.PEER, game, python=python, threads=1)
            yield Measure(of_game(game), "s", training.cpu)


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
    shown = " ".join(argument for argument in arguments if "\n" not in argument)
    print(f"  {folder.parent.name}: {shown}", file=sys.stderr, flush=True)
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
