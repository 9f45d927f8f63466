"""names of learners, seeds -> returns on CartPole-v1 and the time they took, one core each

`python -m benchmarks.cartpole.measure iqn sb3_dqn --seeds 0 1 2`. A learner of this project has the
settings of presets/gymnasium.yaml, one of stable-baselines3 the tuned ones of rl-baselines3-zoo and
the interpreter of .bench/peers (`make bench-peers`). Each run is a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.judging.render import markdown_table
from quatrain.statistics import format_mean

OURS = ("iqn", "actor_critic")
THEIRS = ("sb3_dqn", "sb3_ppo")
PEERS = Path(".bench/peers/bin/python")
HEAD = [
    "learner",
    "return of 100 held-out episodes (seeds)",
    "CPU seconds until 475, start included",
    "CPU seconds in all",
    "transitions per CPU second",
]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cartpole.measure", description=__doc__
    )
    parser.add_argument("learners", nargs="+", choices=[*OURS, *THEIRS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--peers", type=Path, default=PEERS, help="interpreter with other libraries"
    )
    selected = parser.parse_args(argv)
    rows = []
    for learner in selected.learners:
        runs = [trained(learner, seed, selected.peers) for seed in selected.seeds]
        for seed, run in zip(selected.seeds, runs, strict=True):
            print(json.dumps({"learner": learner, "seed": seed, **run}), file=sys.stderr)
        rows.append(row(learner, runs))
    print(markdown_table(HEAD, rows))
    return 0


def trained(learner: str, seed: int, peers: Path) -> dict[str, Any]:
    """Trains in a process with one thread; returns what it printed last."""
    module, python = "ours", Path(sys.executable)
    if learner in THEIRS:
        module, python = "sb3", peers
    paths = f"{Path('src').resolve()}:{Path.cwd()}"
    variables = os.environ | {
        "OMP_NUM_THREADS": "1",
        "NPROC": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": paths,
        "PYTHONWARNINGS": "ignore",
    }
    command = [python, "-m", f"benchmarks.cartpole.{module}", learner, str(seed)]
    result = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def row(learner: str, runs: list[dict[str, Any]]) -> list[str]:
    """Returns the cells of a learner: means over seeds, with 95 % intervals of enough."""
    returns = np.array([run["return_mean"] for run in runs])
    listed = ", ".join(f"{value:.1f}" for value in returns)
    solved = [run["solved_seconds"] for run in runs]
    return [
        learner,
        f"{format_mean(returns, 1)} ({listed})",
        ", ".join("never" if value is None else f"{value:.1f}" for value in solved),
        f"{np.mean([run['seconds'] for run in runs]):.1f}",
        f"{np.mean([run['transitions'] / run['seconds'] for run in runs]):,.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
