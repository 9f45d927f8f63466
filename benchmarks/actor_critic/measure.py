"""actor_critic: the proposal's items, playing, and learning, against the plain reference."""

from pathlib import Path

from benchmarks.actor_critic import gae, learning, memory, parts, playing, whole
from benchmarks.actor_critic.sides import config_of, sides_of
from benchmarks.table import Report
from benchmarks.torch_threads import threads

FULL = {"features": "full", "obs_norm": "dataset"}
"""Of env: what the original sees, so that both sides do the same work."""
NOTES = [
    "before: the plain reference, colony by colony and cell by cell, with the dynamics and network "
    "of the project; "
    "seed's way: the same with the proposal's item. One thread where a row says nothing else",
    "steps are counted by colony, entropies, rewards and selections by call of one colony (by 256 "
    "states: entropy)",
    "ResNet18: the original passes an image of each cell through one for its actor, one of the "
    "graph for its critic, "
    "and its environment does so again with a network of its own: twice. Here with random weights, "
    "frozen",
    "limit: what this machine needs at least for the most of that work: products of matrices with "
    "as many operations, "
    "a filter in C, a copy of the state",
    "counted up: some graphs or episodes are timed, of which each takes a plain loop as long as "
    "any other",
    "lines with two blanks in front: the same work with what they name changed",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of actor_critic's table."""
    with threads(1):
        rows = parts.rows(rounds)
        rows += gae.rows(rounds)
    rows += playing.rows(sides_of(config_of(root, env=FULL)), rounds)
    light = sides_of(config_of(root))
    rows += learning.rows(light, rounds) + whole.rows(light, rounds) + memory.rows(root)
    return Report(rows, [*NOTES, parts.ties_note()], "cpu")
