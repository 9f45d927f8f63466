"""rows of this project against other libraries, in one process: the interpreter of .bench/peers"""

import importlib
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import Report
from benchmarks.peers.environment import NOT_INSTALLED, reason

MODULES = {
    "cpprb": "cpprb",
    "flashbax": "flashbax",
    "stable-baselines3": "stable_baselines3.common.buffers",
    "tianshou": "tianshou.data",
    "torchrl": "torchrl.data",
    "rejax": "rejax",
    "gymnax": "gymnax",
}
"""Library -> what of it must be there to be compared."""
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
    "gradient steps: against the same network in PyTorch, with one thread where that is faster",
]


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of the available libraries, and a note on each missing one."""
    import jax

    from benchmarks.peers import gae, host, updates

    libraries, missing = importable()
    rows = [*host.rows(libraries, rounds), *gae.rows(libraries, rounds)]
    rows += updates.rows(root, rounds)
    notes = [*NOTES, *missing, ", ".join(f"{name} {version(name)}" for name in libraries)]
    if "flashbax" in libraries:
        from benchmarks.peers import scan

        rows += scan.rows(rounds)
    if {"rejax", "gymnax", "stable-baselines3"} <= {*libraries}:
        from benchmarks.peers import loop

        rows += loop.rows(rounds)
        notes += loop.NOTES
    return Report(rows, notes, jax.devices()[0].device_kind)


def importable() -> tuple[list[str], list[str]]:
    """Returns the available libraries, and notes on the others."""
    libraries = []
    notes = []
    for library, module in MODULES.items():
        try:
            importlib.import_module(module)
            libraries.append(library)
        except Exception as error:
            why = f"{type(error).__name__}: {reason(error)}"
            notes.append(NOT_INSTALLED.format(what=library, why=why))
    return libraries, notes
