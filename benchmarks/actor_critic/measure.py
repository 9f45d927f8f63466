"""actor_critic: the seed's four proposals, playing, and learning, against the plain reference and other libraries."""

from pathlib import Path

from benchmarks.actor_critic import gae, learning, memory, parts, playing
from benchmarks.actor_critic.sides import config_of, sides_of
from benchmarks.table import Report
from benchmarks.torch_threads import threads

FULL = {"features": "full", "obs_norm": "dataset"}
"""Of env: what the original sees, so that both sides do the same work."""
NOTES = [
    "before: the plain reference, colony by colony and cell by cell, with the dynamics and network of the project; "
    "seed's way: the same with the seed's proposal. One thread where a row says nothing else",
    "steps are counted by colony, entropies, rewards and selections by call of one colony (by 256 states: entropy)",
    "ResNet18: the original passes an image of each cell through one for its actor, one of the graph for its critic, "
    "and its environment does so again with a network of its own: twice. Here with random weights, frozen",
    "lines with two blanks in front: the same work with what they name changed",
]


def measure(root: Path, rounds: int) -> Report:
    """All rows of actor_critic's table."""
    with threads(1):
        rows = parts.rows(rounds)
        advantages = gae.rows(root, rounds)
    rows += advantages.rows
    rows += playing.rows(sides_of(config_of(root, env=FULL)), rounds)
    rows += learning.rows(sides_of(config_of(root)), rounds)
    notes = [*NOTES, *advantages.notes, parts.ties_note(), memory.note(root)]
    return Report(rows, notes, "cpu")
