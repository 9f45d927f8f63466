"""active_dynamics: plans, beliefs, gradient steps, worlds and proposal items -> a report"""

from pathlib import Path

from benchmarks.active_dynamics import learning, memory, parts, planning, world
from benchmarks.table import Report
from benchmarks.torch_threads import threads

NOTES = [
    "before: the plain reference, one environment, candidate or horizon after another; seed's"
    " way: the same with the proposal's item, right or wrong. One thread where a row says "
    "nothing else",
    "steps: of plans a plan of one row, of agents and environments a transition of one "
    "environment, of training a window, of filters a transition of one row",
    "pseudo-inverses: the original's planner makes one of 50 x 50 for each candidate and "
    "step, and what comes of it is the identity; it takes the diagonal of the information "
    "alone, the project all of it",
    "a new Adam: the original makes an optimiser, which has no moments then, and a loader for"
    " each step",
    "seed's way, wrong: the agent that believes its own predictions, the mask in one buffer, "
    "weights of horizons that are not normalised when they are made, a variance that is kept "
    "and cannot learn; without effect: transfers that do not wait, a pool that nothing is "
    "taken from, the clone that asks for gradients first",
    "limit: products of matrices with as many operations as the work has in products, what a "
    "filter has to touch; counted up: some iterations of a plain plan are timed, of which "
    "each takes as long as any other",
    "lines with two blanks in front: the same work with what they name changed",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of active_dynamics' table."""
    rows = planning.rows(root, rounds) + learning.rows(root, rounds)
    with threads(1):
        rows += parts.rows(rounds) + world.rows(root, rounds)
    return Report(rows + memory.rows(root), NOTES, "cpu")
