"""rows of environments of others: what ours and stable-baselines3 learn there, over seeds

`make bench BENCH=environments`; `make bench-peers` installs the environments and the other library.
Each training is a process of one thread, and what it returned is kept in .bench/environments until
its task or the learner's code changes: a run that was interrupted goes on, and hours are not spent
twice.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.environments import learn
from benchmarks.environments.tasks import IQN, PEER, PPO, RANDOM, TASKS, Task
from quatrain.api.configs import make_params
from benchmarks.rows import OURS, Row, Times

CACHE = Path(".bench/environments")
SEEDS = 3
LEARNING = ("envs/host", "frameworks", "replay")
"""Folders of src/quatrain that a training depends on, beside its model's."""


def measure(root: Path, _rounds: int) -> list[Row]:
    """Trains what is not kept yet, as many at once as there are cores, and returns all rows."""
    works = [work for task in TASKS for work in works_of(task)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(works, pool.map(lambda work: result_of(root, *work), works), strict=True))
    return [row for task in TASKS for row in rows_of(task, results)]


def works_of(task: Task) -> Iterator[tuple[str, Task, int]]:
    for seed in range(SEEDS):
        yield from ((side, task, seed) for side in sides_of(task))


def sides_of(task: Task) -> list[str]:
    return [*task.learners, *([] if task.zoo is None else [PEER]), RANDOM]


def result_of(root: Path, side: str, task: Task, seed: int) -> dict[str, Any]:
    """Returns what a process printed, now or before.

    Raises:
        CalledProcessError: it failed.
    """
    file = root / CACHE / f"{side}_{task.name}_{seed}_{digest(root, side, task)}.json"
    if not file.exists():
        print(f"  {task.name}, {side}, seed {seed}", file=sys.stderr, flush=True)
        variables = {"OMP_NUM_THREADS": "1", "NPROC": "1", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", learn.__name__, side, task.name, str(seed)],
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(done.stdout.rstrip().rpartition("\n")[2])
    return json.loads(file.read_text())


def digest(root: Path, side: str, task: Task) -> str:
    """Returns what changes where a training would give another result."""
    parts: list[str] = [str(task.keys), str(learn.EPISODES)]
    if side == PEER:
        parts += [str(task.zoo), str(task.transitions)]
    elif side != RANDOM:
        changes = {"env": task.keys, "train": task.length(side)}
        parts.append(repr(make_params(side, task.preset, changes)))
        folders = [*LEARNING, f"models/{side}"]
        files = sorted(file for each in folders for file in (root / "src/quatrain" / each).rglob("*.py"))
        parts += [file.read_text() for file in files]
    return sha256("\n".join(parts).encode()).hexdigest()[:12]


def rows_of(task: Task, results: Any) -> list[Row]:
    """Returns the returns and CPU seconds of a task, or the line that refuses it."""
    def each(side: str, value: str) -> Times:
        return Times([results[side, task, seed][value] for seed in range(SEEDS)])

    first = {side: results[side, task, 0] for side in sides_of(task)}
    learned = [side for side in sides_of(task) if "refused" not in first[side]]
    note = " ".join(f"{side}: {first[side]['refused']}" for side in first if side not in learned)
    work = f"{task.name}, {task.transitions:,} transitions"
    sides = {NAMES.get(side, side): each(side, "return") for side in learned}
    returns = Row(work, "return", sides, note=note)
    return []
