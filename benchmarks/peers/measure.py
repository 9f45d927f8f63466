"""rows of this project against other libraries, in one process: the interpreter of .bench/peers"""

import argparse
import importlib
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import Report, Row
from benchmarks.peers.environment import NOT_INSTALLED, reason
from benchmarks.run import measured_here

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
    parts = {
        "replays on the host": lambda: host.rows(libraries, rounds),
        "advantages": lambda: gae.rows(libraries, rounds),
        "gradient steps": lambda: updates.rows(root, rounds),
    }
    if "flashbax" in libraries:
        from benchmarks.peers import scan

        parts["replays in a scan"] = lambda: scan.rows(rounds)
    notes = [*NOTES, *missing, ", ".join(f"{name} {version(name)}" for name in libraries)]
    if {"rejax", "gymnax", "stable-baselines3"} <= {*libraries}:
        from benchmarks.peers import loop

        parts["training loops"] = lambda: loop.rows(rounds)
        notes += loop.NOTES
    rows: list[Row] = []
    for what, part in parts.items():
        begin = time.perf_counter()
        rows += part()
        print(f"peers: {what}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.measure", description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args(argv)
    return measured_here("peers", options.rounds, options.results)


if __name__ == "__main__":
    sys.exit(main())
