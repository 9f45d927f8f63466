""".bench/peers -> a table of speed against other libraries: printed, stored in
benchmarks/results/peers.json
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.environment import environment, reason, variables
from benchmarks.run import LEAST_ROUNDS, RESULTS, publish
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.run", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=LEAST_ROUNDS, help="rounds of each comparison (default: 5)"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder for the JSON (default: %(default)s)"
    )
    selected = parser.parse_args(argv)
    if selected.rounds < LEAST_ROUNDS:
        parser.error(
            f"--rounds {selected.rounds}: medians of fewer than {LEAST_ROUNDS} rounds say nothing"
        )
    try:
        prepare_process(read_params(Path.cwd()))
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    code = measured(Path.cwd(), selected.rounds, selected.results)
    publish(Path.cwd(), selected.results, ["peers"])
    return code


def measured(root: Path, rounds: int, results: Path) -> int:
    """Measures in the interpreter that has the libraries, which are installed if missing."""
    try:
        python = environment(root)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"other libraries are not compared: {reason(error)} [exit 3]", file=sys.stderr)
        return 3
    command = [str(python), "-m", "benchmarks.peers.measure"]
    command += ["--rounds", str(rounds), "--results", str(results)]
    code = subprocess.run(command, cwd=root, env=variables(root)).returncode
    if code < 0:
        print(
            f"other libraries are not compared: signal {-code} ended their process [exit 1]",
            file=sys.stderr,
        )
    return max(code, 1) if code else 0


if __name__ == "__main__":
    sys.exit(main())
