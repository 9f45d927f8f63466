"""actor_critic: the proposal's items, playing and learning, against the plain reference"""

from pathlib import Path

from benchmarks.actor_critic import learning, memory, parts, playing
from benchmarks.actor_critic.sides import actor_of
from benchmarks.harness import Report
from quatrain.frameworks.torch.threads import threads

NOTES = [
    "before: the plain reference, colony by colony and cell by cell; seed's way: the same with the"
    " proposal's item. One thread where a row says nothing else",
    "steps, rewards and selections are counted by colony, entropies by 256 states",
    "ResNet18: the original passes an image of each cell through one for its actor, one of the"
    " graph for its critic; its environment does so again: twice. Here frozen, with random weights",
    "limit: products of matrices with as many operations, a filter in C, a copy of the state",
    "argpartition alone selects other cells than sorting where some share an x",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of actor_critic's table."""
    with threads(1):
        rows = parts.rows(rounds)
    # What the original sees.
    rows += playing.rows(actor_of(root, env={"features": "full"}), rounds)
    rows += learning.rows(actor_of(root), rounds)
    return Report([*rows, memory.row()], NOTES, "cpu")
