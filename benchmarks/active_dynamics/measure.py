"""active_dynamics: plans, beliefs, gradient steps and the proposal's items -> a report"""

from pathlib import Path

from benchmarks.active_dynamics import learning, memory, parts, planning
from benchmarks.harness import Report
from quatrain.frameworks.torch.threads import threads

NOTES = [
    "before: the plain reference, one environment, candidate or horizon after another; seed's way:"
    " the same with the proposal's item, right or wrong. One thread where a row says nothing else",
    "steps: a plan of one row, an agent's transition in one environment, training on one window",
    "agent step: all sides encode and predict, nothing else. The project's trainer also updates the"
    " posterior of the field's weights, which the original has not: with it a step takes about 1.2"
    " times as long with the MLP, 1.8 times with 625 centres",
    "pseudo-inverses: the original makes one of 50 x 50 for each candidate and step; the result is"
    " the identity. It takes the diagonal of the information, the project all of it",
    "a new Adam: the original makes an optimiser without moments, and a loader, for each step",
    "limit: products of matrices with as many operations",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of active_dynamics' table."""
    rows = planning.rows(root, rounds) + learning.rows(root, rounds)
    with threads(1):
        rows += parts.rows(rounds) + memory.rows()
    return Report(rows, NOTES, "cpu")
