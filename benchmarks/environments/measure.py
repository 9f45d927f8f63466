"""rows of environments of others: what ours and stable-baselines3 learn there, over seeds

`make bench BENCH=environments`; `make bench-peers` installs the environments and the other library.
Each training is a process of one thread. What it returned is kept in benchmarks/results, since all
take hours together, and holds while its settings are the same: a run that was interrupted goes on.
Remove the file after a change of the code.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.environments import learn
from benchmarks.environments.tasks import PPO, Task, read
from benchmarks.rows import OURS, PEER, RANDOM, Row, Times
from pipeline.reporting.result_files import write_lines
from quatrain.api.configs import make_params

KEPT = Path("benchmarks/results/environment_trainings.json")
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
    kept = read_kept(root)
    missing = [work for work in works if key_of(*work) not in kept]
    print(f"  {len(missing)} of {len(works)} are not in {KEPT}", file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        trainings = {pool.submit(result_of, root, *work): key_of(*work) for work in missing}
        for training in as_completed(trainings):
            kept[trainings[training]] = training.result()
            write_lines(root / KEPT, dict(sorted(kept.items())), depth=1)
    return [row for task in tasks for row in rows_of(task, kept)]


def read_kept(root: Path) -> dict[str, Any]:
    """Returns `key_of` of each training -> what it printed."""
    file = root / KEPT
    return dict(json.loads(file.read_text())) if file.exists() else {}


def sides_of(task: Task) -> list[str]:
    return [*task.transitions, *([] if task.zoo is None else [PEER]), RANDOM]


def key_of(side: str, task: Task, seed: int) -> str:
    """Names a training by what decides its result beside the code."""
    settings = [task.keys, learn.EPISODES]
    if side == PEER:
        settings += [task.zoo, task.transitions[PPO]]
    elif side != RANDOM:
        changes = {"env": task.keys, "train": task.length(side)}
        settings.append(getattr(make_params(side, task.preset, changes), side))
    return f"{task.name}, {side}, seed {seed}: {sha256(repr(settings).encode()).hexdigest()[:12]}"


def result_of(root: Path, side: str, task: Task, seed: int) -> dict[str, Any]:
    """Returns what a process printed.

    Raises:
        CalledProcessError: it failed.
    """
    print(f"  {task.name}, {side}, seed {seed}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", learn.__name__, side, task.name, str(seed)],
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NPROC": "1", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    return result


def rows_of(task: Task, kept: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Returns what was returned, with the lines that refuse it, and the CPU seconds beside the
    other library.
    """

    def each(value: str) -> dict[str, Times]:
        """Returns side -> a value of each seed, of the sides that have it."""
        sides: dict[str, list[float]] = {}
        for seed in range(task.seeds):
            for side in sides_of(task):
                if value in (result := kept.get(key_of(side, task, seed), {})):
                    sides.setdefault(NAMES.get(side, side), []).append(result[value])
        return {side: Times(values) for side, values in sides.items()}

    refused = {
        side: kept.get(key_of(side, task, 0), {}).get("refused") for side in task.transitions
    }
    note = " ".join(f"{NAMES.get(side, side)}: {line}" for side, line in refused.items() if line)
    lengths = " / ".join(f"{count:,}" for count in dict.fromkeys(task.transitions.values()))
    work = f"{task.preset}: {task.name}, {lengths}"
    rows = [Row(work, "return", each("return"), note=note)]
    seconds = each("cpu")
    if {OURS, PEER} <= seconds.keys():
        pairs = zip(seconds[OURS].values, seconds[PEER].values, strict=False)  # of trained seeds
        learned = dict(zip((OURS, PEER), map(Times, zip(*pairs, strict=True)), strict=True))
        rows.append(Row(f"PPO in {task.name}, {task.transitions[PPO]:,} transitions", "s", learned))
    return rows
