"""memory of a rollout: a dictionary for each graph, as the original keeps them, against one block; by two processes."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.reference.actor_critic_parts import reward_before
from benchmarks.reference.colony_rewards import GOAL_WEIGHTS
from quatrain.replay.rollouts.buffer import Graphs, Sizes, Step, allocate, write

STEPS, COLONIES, CELLS, SLOTS = 16, 128, 40, 100
NODE, GRAPH, NUMBERS = 8, 10, 5
SIDES = ("before", "ours")


def note(root: Path) -> str:
    """What each takes beyond what the libraries do, at its peak."""
    taken = {side: measured(root, side) for side in SIDES}
    return (
        f"memory of a rollout of {STEPS} x {COLONIES} graphs of {CELLS} cells (the seed claims 10-20 % less): a "
        f"dictionary each {taken['before']:.1f} MB, ours {taken['ours']:.1f} MB, "
        f"allocated once, with room for {SLOTS} cells each"
    )


def measured(root: Path, side: str) -> float:
    """Megabytes by which a process of its own grew."""
    paths = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "benchmarks.actor_critic.memory", side]
    ran = subprocess.run(command, cwd=root, env=os.environ | paths, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def before() -> list[dict[str, object]]:
    """Step by step and colony by colony."""
    kept: list[dict[str, object]] = []
    for _ in range(STEPS):
        graphs = seen()
        for row in range(COLONIES):
            values = dict.fromkeys(GOAL_WEIGHTS, float(row))
            kept.append(
                {
                    "state": {
                        "node": graphs.node[row].clone(),
                        "graph": graphs.graph[row].clone(),
                        "parent": graphs.parent[row].clone(),
                        "ids": list(range(10**6, 10**6 + CELLS)),
                    },
                    "action": torch.randn(NUMBERS),
                    "log_prob": torch.randn(()),
                    "value": torch.randn(()),
                    "reward": reward_before(values, GOAL_WEIGHTS),
                    "terminated": False,
                }
            )
    return kept


def ours() -> object:
    """Into one block."""
    components = len(GOAL_WEIGHTS)
    rollout = allocate(Sizes(STEPS, COLONIES, SLOTS, NODE, GRAPH, NUMBERS, components, ()))
    flags = torch.zeros(COLONIES, dtype=torch.bool)
    for time in range(STEPS):
        numbers, value = torch.randn(3, COLONIES, NUMBERS), torch.randn(2, COLONIES)
        z, first, second = numbers
        paid = torch.randn(COLONIES, components)
        write(rollout, time, Step(seen(), z, value[0], first, second, value[1], paid, flags, flags))
    return rollout


def seen() -> Graphs:
    """Random graphs of one size."""
    return Graphs(
        node=torch.randn(COLONIES, CELLS, NODE),
        graph=torch.randn(COLONIES, GRAPH),
        parent=torch.randint(-1, CELLS, (COLONIES, CELLS)),
        mask=torch.ones(COLONIES, CELLS, dtype=torch.bool),
    )


def peak() -> float:
    """Megabytes; getrusage would begin with what the process that started this one has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    torch.set_num_threads(1)
    seen()
    begin = peak()
    kept = {"before": before, "ours": ours}[sys.argv[1]]()
    print(peak() - begin)
    del kept


if __name__ == "__main__":
    main()
