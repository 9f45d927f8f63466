"""names of benchmarks (none: the models) -> benchmarks/results/*.json and docs/benchmarks.md"""

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import rows
from benchmarks.rows import Results
from pipeline.runtime.devices import settings
from pipeline.runtime.errors import described
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS

RESULTS = Path("benchmarks/results")
COMPARED = Path(".bench/compare")
"""Where `--compare` keeps what it measures."""
PEERS = Path(".bench/peers")
"""Environment of other libraries."""
BESIDE_PEERS = ("peers", "environments")
"""Benchmarks that run in that environment."""
NAMES = (*MODELS, "peers", "loop", "environments")
"""Benchmarks, in the order of the page: `benchmarks/NAME/measure.py`."""
ROUNDS, LEAST_ROUNDS = 9, 5


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each (default: {ROUNDS})")
    only_page = "measure nothing, write the page of the results that are there"
    parser.add_argument("--page", action="store_true", help=only_page)
    compare = "store nothing, print each ratio beside that of the last results"
    parser.add_argument("--compare", action="store_true", help=compare)
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)  # in this process, into here
    selected = parser.parse_args(argv)
    if unknown := sorted(set(selected.names) - set(NAMES)):
        listed = ", ".join(NAMES)
        parser.error(f"{', '.join(unknown)}: there is no such benchmark; there are {listed}")
    if selected.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds {selected.rounds}: fewer than {LEAST_ROUNDS} have no quartiles")
    if selected.here:
        return measured_here(selected.names[0], selected.rounds, selected.here)
    names = [] if selected.page else list(dict.fromkeys(selected.names)) or list(MODELS)
    folder = COMPARED if selected.compare else RESULTS
    codes = {name: measured(name, selected.rounds, folder) for name in names}
    done = [name for name, code in codes.items() if code == 0]
    if done or selected.page:
        codes["page"] = show(Path.cwd(), folder, done)
    return max(codes.values())


def measured(name: str, rounds: int, folder: Path) -> int:
    """Measures in a new process: jax reads its thread count once, memory is not shared. Other
    libraries have an environment of their own.
    """
    begin = time.perf_counter()
    python, variables = Path(sys.executable), dict(os.environ)
    if name in BESIDE_PEERS:
        if not (PEERS / ".installed").exists():
            why = f"{PEERS} lacks other libraries; `make bench-peers` installs them"
            print(f"{name}: {why} [exit 3]", file=sys.stderr)
            return 3
        python = PEERS / "bin" / "python"
        paths = f"{Path('src').resolve()}:{Path.cwd()}"
        variables |= {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    options = ["--rounds", str(rounds), "--here", str(folder)]
    code = subprocess.run(
        [python, "-m", "benchmarks.run", name, *options], env=variables
    ).returncode
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return max(code, 1) if code else 0


def measured_here(name: str, rounds: int, folder: Path) -> int:
    """Measures one benchmark and writes its JSON."""
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    benchmark = importlib.import_module(f"benchmarks.{name}.measure")
    framework = MODELS.get(name, "jax")
    with on_device(params, framework):
        measured_rows = benchmark.measure(Path.cwd(), rounds)
    rows.write(folder, name, Results(settings(params, framework), rounds, measured_rows))
    return 0


def show(root: Path, folder: Path, names: Sequence[str]) -> int:
    """Prints what was measured beside the last results, or its tables, and writes the page of all
    results. Returns the exit code.
    """
    from benchmarks import page  # loads matplotlib, for which a wrong argument should not wait

    try:
        now, stored = rows.read(root / folder, names), rows.read(root / RESULTS, NAMES)
        if folder == COMPARED:
            print(page.compare(stored, now))
            return 0
        for table in page.TABLES:
            print(table(page.rows_of(now)), end="")
        print(f"page: {page.write(root, stored).relative_to(root)}")
    except (DataError, OSError) as error:
        why = " ".join(described(error).split())
        print(f"warning: {why}; the results are kept in {folder}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
