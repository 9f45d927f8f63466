"""rows of environments of others: what ours and stable-baselines3 learn there, over seeds

`make bench BENCH=environments`; `make bench-peers` installs the environments and the other library.
Each training is a process of one thread, and what it returned is kept in .bench/environments while
its settings are the same: a run that was interrupted goes on. Remove that folder after a change of
the code.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.environments import learn
from benchmarks.environments.tasks import PPO, Task, read
from benchmarks.rows import OURS, PEER, RANDOM, Row, Times
from quatrain.api.configs import make_params

CACHE = Path(".bench/environments")
NAMES = {PPO: OURS}


def measure(root: Path, _rounds: int) -> list[Row]:
    """Trains what is not kept yet, as many at once as there are cores, and returns all rows."""
    tasks = read().values()
    works = [
        (side, task, seed)
        for task in tasks
        for side in sides_of(task)
        for seed in range(task.seeds)
    ]
    kept = sum(file_of(root, *work).exists() for work in works)
    print(f"  {kept} of {len(works)} are kept in {CACHE}; remove it to train anew", file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        printed = list(pool.map(lambda work: result_of(root, *work), works))
    results = {
        (side, task.name, seed): each
        for (side, task, seed), each in zip(works, printed, strict=True)
    }
    return [row for task in tasks for row in rows_of(task, results)]


def sides_of(task: Task) -> list[str]:
    return [*task.transitions, *([] if task.zoo is None else [PEER]), RANDOM]


def file_of(root: Path, side: str, task: Task, seed: int) -> Path:
    """Returns the file of a result, by what decides it beside the code."""
    settings = [task.keys, learn.EPISODES]
    if side == PEER:
        settings += [task.zoo, task.transitions[PPO]]
    elif side != RANDOM:
        changes = {"env": task.keys, "train": task.length(side)}
        settings.append(getattr(make_params(side, task.preset, changes), side))
    digest = sha256(repr(settings).encode()).hexdigest()[:12]
    return root / CACHE / f"{side}_{task.name}_{seed}_{digest}.json"


def result_of(root: Path, side: str, task: Task, seed: int) -> dict[str, Any]:
    """Returns what a process printed, now or before.

    Raises:
        CalledProcessError: it failed.
    """
    file = file_of(root, side, task, seed)
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
    result: dict[str, Any] = json.loads(file.read_text())
    return result


def rows_of(task: Task, results: Mapping[tuple[str, str, int], Mapping[str, Any]]) -> list[Row]:
    """Returns what was returned, with the lines that refuse it, and the CPU seconds beside the
    other library.
    """

    def each(value: str) -> dict[str, Times]:
        """Returns side -> a value of each seed, of the sides that have it."""
        sides: dict[str, list[float]] = {}
        for seed in range(task.seeds):
            for side in sides_of(task):
                if value in (result := results[side, task.name, seed]):
                    sides.setdefault(NAMES.get(side, side), []).append(result[value])
        return {side: Times(values) for side, values in sides.items()}

    refused = {side: results[side, task.name, 0].get("refused") for side in task.transitions}
    note = " ".join(f"{NAMES.get(side, side)}: {line}" for side, line in refused.items() if line)
    lengths = " / ".join(f"{count:,}" for count in dict.fromkeys(task.transitions.values()))
    work = f"{task.preset}: {task.name}, {lengths}"
    rows = [Row(work, "return", each("return"), note=note)]
    if PEER in (seconds := each("cpu")):
        learned = {side: seconds[side] for side in (OURS, PEER)}
        rows.append(Row(f"PPO in {task.name}, {task.transitions[PPO]:,} transitions", "s", learned))
    return rows
