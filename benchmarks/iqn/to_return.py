"""runs -> who earns a greedy return sooner, iqn or its plain reference; takes minutes a run"""

import argparse
import sys
from pathlib import Path

from benchmarks.run import RESULTS, measured_here, publish

NAME = "iqn_to_return"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iqn.to_return", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="trainings of each side (1)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON")
    selected = parser.parse_args(argv)
    if selected.runs < 1:
        parser.error(f"--runs {selected.runs}: at least one of each side")
    code = measured_here(NAME, selected.runs, selected.results, "benchmarks.iqn.returns")
    if code == 0:
        publish(Path.cwd(), selected.results, [NAME])
    return code


if __name__ == "__main__":
    sys.exit(main())
