"""runs -> who earns a greedy return sooner, iqn or its plain reference: a table and its JSON, minutes a run"""

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import publish
from benchmarks.run import RESULTS, as_text
from benchmarks.table import render
from pipeline.devices import on_device, settings
from pipeline.params import ConfigError, read_params
from pipeline.stage import prepare_process

FRAMEWORK = "jax"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iqn.to_return", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="trainings of each side, every one of its own seed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON (default: %(default)s)")
    chosen = parser.parse_args(argv)
    if chosen.runs < 1:
        parser.error(f"--runs {chosen.runs}: at least one of each side")
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    returns = importlib.import_module("benchmarks.iqn.returns")
    with on_device(params, FRAMEWORK):
        report = returns.measure(Path.cwd(), chosen.runs)
    print(render(report.rows), "", *report.notes, sep="\n")
    machine = settings(params, FRAMEWORK) | {"backend": report.backend}
    chosen.results.mkdir(parents=True, exist_ok=True)
    (chosen.results / "iqn_to_return.json").write_text(as_text(report, machine, chosen.runs))
    publish.publish(Path.cwd(), chosen.results, ["iqn_to_return"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
