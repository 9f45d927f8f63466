"""rows of this project against other libraries, in one process: the interpreter of .bench/peers"""

from importlib.metadata import version
from pathlib import Path

import jax

from benchmarks.harness import Report
from benchmarks.iqn.measure import narrow_rows
from benchmarks.peers import colony, gae, host, loop, scan
from benchmarks.speed import REFERENCE

LIBRARIES = ["cpprb", "flashbax", "stable-baselines3", "tianshou", "torchrl", "rejax", "gymnax"]
NOTES = [
    "before: the library that the row names, with its defaults and the threads of this process;"
    " what each draws or computes is checked before it is timed",
    "draws on the host: five columns (obs, action, reward, next_obs, done) in the arrays that"
    " each library gives back: NumPy's of cpprb, tianshou and ours, PyTorch's of"
    " stable-baselines3 and torchrl, JAX's of flashbax, whose draw is one jitted call. limit:"
    " np.take of the same columns",
    "add of 1000: one call, of stable-baselines3 with 1000 environments; tianshou has none. no"
    " timeouts: handle_timeout_termination=False, a column less",
    "in a scan: a step adds a turn of 16 lanes and draws; ours gets the random words of all steps"
    " at once, flashbax a key for each step. limit: the same write, and gathers of given entries",
    "gradient steps: torch is no library's learner, but our own plain reference of iqn in PyTorch,"
    " with the work that the original wastes (gradients that nobody reads); with one thread where"
    " that is faster",
]


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of all libraries."""
    rows = [*host.rows(rounds), *gae.rows(rounds)]
    rows += [
        row._replace(claims=(), against="torch")  # the claims are iqn's
        for row in narrow_rows(root, rounds)
        if row.before and row.against == REFERENCE
    ]
    rows += [*scan.rows(rounds), *loop.rows(rounds)]
    of_colonies, colony_notes = colony.report(root)
    rows += of_colonies
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    notes = [*NOTES, *loop.NOTES, *colony_notes, versions]
    return Report(rows, notes, jax.devices()[0].device_kind)
