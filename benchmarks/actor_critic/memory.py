"""memory of a rollout: a dictionary for each graph, as the original keeps them, against one block;
by processes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Measured
from benchmarks.reference.actor_critic_iteration import BEFORE, SEED, Ways
from benchmarks.reference.actor_critic_parts import Episode
from benchmarks.reference.colony_rewards import GOAL_WEIGHTS
from benchmarks.table import Row
from quatrain.replay.rollouts.buffer import Graphs, Sizes, Step, allocate, write
from quatrain.replay.rollouts.gae import Trace, advantages

STEPS, COLONIES, CELLS, SLOTS = 16, 128, 40, 100
NODE, GRAPH, NUMBERS = 8, 10, 5
DISCOUNT, LAMBDA = 0.98, 0.95


def rows(root: Path) -> list[Row]:
    """Measures the peak memory of each implementation beyond that of the libraries; processes run
    concurrently, as none is timed.
    """
    started = {side: begun(root, side) for side in SIDES}
    peaks = {side: grown(process) for side, process in started.items()}
    name = (
        f"memory of a rollout and its advantages, {STEPS} x {COLONIES} graphs of {CELLS} cells; "
        f"ours: of {SLOTS}"
    )
    return [
        Row(name, "MB", peaks["ours"], peaks["before"], peaks["seed"], claims=("colony-memory",))
    ]


def begun(root: Path, side: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "benchmarks.actor_critic.memory", side]
    return subprocess.Popen(
        command, cwd=root, env=os.environ | paths, stdout=subprocess.PIPE, text=True
    )


def grown(process: subprocess.Popen[str]) -> Measured:
    """Bytes by which a process of its own grew.

    Raises:
        RuntimeError: it failed.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"memory: {process.args} ended with {process.returncode}")
    return Measured(np.array([2**20 * float(output)]))


def plain(ways: Ways) -> tuple[object, object]:
    """Collects steps colony by colony, then the training samples of each colony."""
    kept: list[list[dict[str, Any]]] = [[] for _ in range(COLONIES)]
    for _ in range(STEPS):
        graphs = observed()
        for row in range(COLONIES):
            kept[row].append(kept_of(graphs, row, ways))
    return kept, [ways.advantages(episode_of(each), DISCOUNT, LAMBDA) for each in kept]


def kept_of(graphs: Graphs, row: int, ways: Ways) -> dict[str, Any]:
    """Returns what is stored of one step of one colony."""
    return {
        "state": {
            "node": graphs.node[row].clone(),
            "graph": graphs.graph[row].clone(),
            "parent": graphs.parent[row].clone(),
            "ids": list(range(10**6, 10**6 + CELLS)),
        },
        "action": torch.randn(NUMBERS),
        "log_prob": torch.randn(()),
        "value": torch.randn(()),
        "reward": ways.reward(dict.fromkeys(GOAL_WEIGHTS, float(row))),
        "terminated": False,
    }


def episode_of(steps: list[dict[str, Any]]) -> Episode:
    rewards = torch.tensor([step["reward"]["total"] for step in steps])
    values = torch.stack([step["value"] for step in steps])
    return Episode(rewards, values, torch.cat([values[1:], torch.zeros(1)]))


def ours() -> tuple[object, object]:
    """Collects steps into one block."""
    components = len(GOAL_WEIGHTS)
    rollout = allocate(Sizes(STEPS, COLONIES, SLOTS, NODE, GRAPH, NUMBERS, components, ()))
    flags = torch.zeros(COLONIES, dtype=torch.bool)
    for time in range(STEPS):
        raw_action = torch.randn(COLONIES, NUMBERS)
        dist_params = torch.randn(COLONIES, 2, NUMBERS)
        log_prob, value = torch.randn(2, COLONIES)
        paid = torch.randn(COLONIES, components)
        write(
            rollout,
            time,
            Step(observed(), raw_action, log_prob, dist_params, value, paid, flags, flags),
        )
    trace = Trace(
        rollout.components[..., 0],
        rollout.value,
        rollout.next_value,
        rollout.terminated,
        rollout.truncated,
    )
    return rollout, advantages(trace, DISCOUNT, LAMBDA, "auto")


def observed() -> Graphs:
    """Returns random graphs of one size."""
    return Graphs(
        node=torch.randn(COLONIES, CELLS, NODE),
        graph=torch.randn(COLONIES, GRAPH),
        parent=torch.randint(-1, CELLS, (COLONIES, CELLS)),
        mask=torch.ones(COLONIES, CELLS, dtype=torch.bool),
    )


SIDES: dict[str, Callable[[], object]] = {
    "before": lambda: plain(BEFORE),
    "seed": lambda: plain(SEED),
    "ours": ours,
}


def peak() -> float:
    """Megabytes; getrusage would begin with what the process that started this one has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    torch.set_num_threads(1)
    observed()
    begin = peak()
    kept = SIDES[sys.argv[1]]()
    print(peak() - begin)
    del kept


if __name__ == "__main__":
    main()
