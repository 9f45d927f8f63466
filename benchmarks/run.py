"""model's name -> a table of its speed against plain references: printed, and kept in benchmarks/results/."""

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.table import as_json, render
from pipeline.devices import on_device, settings
from pipeline.params import ConfigError, read_params
from pipeline.stage import prepare_process
from quatrain.registry import MODELS

RESULTS = Path("benchmarks/results")
LEAST_ROUNDS = 5


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--rounds", type=int, default=7, help=f"rounds of each comparison, at least {LEAST_ROUNDS}")
    chosen = parser.parse_args(argv)
    if chosen.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds {chosen.rounds}: medians of fewer than {LEAST_ROUNDS} rounds say nothing")
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    benchmark = importlib.import_module(f"benchmarks.{chosen.model}")
    with on_device(params, MODELS[chosen.model]):
        report = benchmark.measure(Path.cwd(), chosen.rounds)
    machine = settings(params, MODELS[chosen.model]) | {"backend": report.backend}
    print(
        f"{machine['cpu']}, {report.backend}, {machine['threads']} threads, {chosen.rounds} interleaved rounds: medians"
    )
    print("", render(report.rows), "", *report.notes, sep="\n")
    RESULTS.mkdir(exist_ok=True)
    result = {**machine, "rounds": chosen.rounds, "rows": [as_json(row) for row in report.rows], "notes": report.notes}
    (RESULTS / f"{chosen.model}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
