"""names of benchmarks -> tables of speed against plain references: printed, stored in
benchmarks/results/, published
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.table import Report, as_json, render
from pipeline.runtime.devices import on_device, settings
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from quatrain.registry import MODELS

RESULTS = Path("benchmarks/results")
BENCHMARKS = (*MODELS, "machine")
"""What has rows: `benchmarks/NAME/measure.py`."""
LEAST_ROUNDS = 5


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; without any: all"
    )
    parser.add_argument(
        "--rounds", type=int, default=LEAST_ROUNDS, help="rounds of each comparison (default: 5)"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder for the JSON (default: %(default)s)"
    )
    parser.add_argument(
        "--here", action="store_true", help=argparse.SUPPRESS
    )  # one benchmark, in this very process
    selected = parser.parse_args(argv)
    names = list(dict.fromkeys(selected.names)) or list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(
            f"{', '.join(unknown)}: there is no such benchmark; there are {', '.join(BENCHMARKS)}"
        )
    if selected.rounds < LEAST_ROUNDS:
        parser.error(
            f"--rounds {selected.rounds}: medians of fewer than {LEAST_ROUNDS} rounds say nothing"
        )
    if selected.here:
        return measured_here(names[0], selected.rounds, selected.results)
    code = max([measured(name, selected.rounds, selected.results) for name in names])
    from benchmarks import publish  # loads matplotlib, for which a wrong argument should not wait

    publish.publish(Path.cwd(), selected.results, names)
    return code


def measured(name: str, rounds: int, results: Path) -> int:
    """Measures in a new process: jax reads its thread count once, memory is not shared."""
    begin = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "benchmarks.run",
        name,
        "--rounds",
        str(rounds),
        "--results",
        str(results),
    ]
    code = subprocess.run([*command, "--here"]).returncode
    print(f"{name}: {time.perf_counter() - begin:.0f} s\n", file=sys.stderr)
    return code


def measured_here(name: str, rounds: int, results: Path, module: str = "") -> int:
    """Measures one benchmark, prints its table and stores its JSON. `module` defaults to the
    benchmark's own.
    """
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    benchmark = importlib.import_module(module or f"benchmarks.{name}.measure")
    framework = MODELS.get(name, "jax")
    with on_device(params, framework):
        report = benchmark.measure(Path.cwd(), rounds)
    machine = settings(params, framework) | {"backend": report.backend}
    print(
        f"{name}: {machine['cpu']}, {report.backend}, {machine['threads']} threads, {rounds}"
        " interleaved rounds"
    )
    print("", render(report.rows), "", *report.notes, sep="\n")
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(as_text(report, machine, rounds))
    return 0


def as_text(report: Report, machine: dict[str, str], rounds: int) -> str:
    """Renders the JSON of a benchmark."""
    rows = [as_json(row) for row in report.rows]
    return (
        json.dumps({**machine, "rounds": rounds, "rows": rows, "notes": report.notes}, indent=1)
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
