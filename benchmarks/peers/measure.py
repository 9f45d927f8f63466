"""rounds -> rows of this project against other libraries, in one process: the interpreter of
.bench/peers
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.environment import NOT_INSTALLED, reason
from benchmarks.table import Report, Row, as_json, render
from pipeline.runtime.devices import on_device, settings
from pipeline.storage.params_file import read_params

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
    (
        "before: the library that the row names, with its defaults and the threads of this process;"
        " what each draws or computes is checked before it is timed"
    ),
    (
        "draws on the host: five columns (obs, action, reward, next_obs, done) in the arrays that"
        " each library gives back: NumPy's of cpprb, tianshou and ours, PyTorch's of"
        " stable-baselines3 and torchrl, JAX's of flashbax, whose draw is one jitted call. limit:"
        " np.take of the same columns at given picks; without: numpy's integers and indexing"
    ),
    (
        "an add of one gives arrays and Python's numbers; an add of 1000 is one call, of"
        " stable-baselines3 with 1000 environments; tianshou has no such call. no timeouts:"
        " handle_timeout_termination=False, a column less"
    ),
    (
        "in a scan: a step adds a turn of 16 lanes and draws; ours gets the random words of all"
        " steps at once, flashbax a key for each step, as its functions want it. limit: the same"
        " write, and gathers of given entries"
    ),
    "gradient steps: against the same network in PyTorch, with one thread where that is faster",
]


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of the available libraries, and a note on each missing one."""
    import jax

    result, notes = importable()
    rows: list[Row] = []
    for what, part in parts(root, result, rounds).items():
        begin = time.perf_counter()
        rows += part()
        print(f"peers: {what}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    if "rejax" in result and "stable-baselines3" in result:
        from benchmarks.peers import loop

        of_loop, lines = loop.rows(rounds)
        rows, notes = rows + of_loop, [*notes, *lines]
    return Report(rows, [*NOTES, *notes], jax.devices()[0].device_kind)


def parts(root: Path, result: list[str], rounds: int) -> dict[str, Callable[[], list[Row]]]:
    """Yields the parts that give rows without a note."""
    from benchmarks.peers import gae, host, updates

    works: dict[str, Callable[[], list[Row]]] = {
        "replays on the host": lambda: host.rows(result, rounds)
    }
    if "flashbax" in result:
        from benchmarks.peers import scan

        works["replays in a scan"] = lambda: scan.rows(rounds)
    works["advantages"] = lambda: gae.rows(result, rounds)
    return works | {"gradient steps": lambda: updates.rows(root, rounds)}


def importable() -> tuple[list[str], list[str]]:
    """Returns the available libraries, and notes on the others."""
    result, notes = [], []
    for library, module in MODULES.items():
        try:
            importlib.import_module(module)
            result.append(library)
        except Exception as error:
            notes.append(
                NOT_INSTALLED.format(what=library, why=f"{type(error).__name__}: {reason(error)}")
            )
    return result, notes


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.measure", description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument(
        "--note", action="append", default=[], help="what to say beside what is found here"
    )
    selected = parser.parse_args(argv)
    params = read_params(Path.cwd())
    with on_device(params, "torch"):
        report = measure(Path.cwd(), selected.rounds)
    missing = [*selected.note, *report.notes]
    there = {
        library: version(library)
        for library in MODULES
        if not any(note.startswith(library) for note in missing)
    }
    machine = settings(params, "torch") | {"backend": report.backend} | there
    lines = ", ".join(f"{name} {number}" for name, number in there.items())
    print(
        f"peers: {machine['cpu']}, {report.backend}, {machine['threads']} threads,"
        f" {selected.rounds} interleaved rounds"
    )
    print(lines, "", render(report.rows), "", *missing, sep="\n")
    rows = [as_json(row) for row in report.rows]
    text = json.dumps(
        {**machine, "rounds": selected.rounds, "rows": rows, "notes": missing}, indent=1
    )
    selected.results.mkdir(parents=True, exist_ok=True)
    (selected.results / "peers.json").write_text(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
