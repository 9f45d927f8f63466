"""rounds -> rows about whole training loops: deep Q-learning on CartPole here, in rejax and in
stable-baselines3

They run in a process of their own with one thread, the fastest setting of all three at this size.
"""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np

from benchmarks.harness import Contestant, Goal, Measured, Row, Without, race
from benchmarks.peers.cartpole import sides
from benchmarks.peers.cartpole.dqn import Schedule

SCHEDULE = Schedule()
TURNS, SLOW_STEPS = 300, 1_000
"""Turns of a call, and environment steps of one of stable-baselines3. The first call, which is not
timed, holds the warm-up of rejax.
"""
CAPACITIES = (10_000, 1_000_000)
"""Transitions that a replay keeps."""
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1"}
UNIT = "us/agent-step"
TRIED = (
    "all parameters in one vector, gradients layer by layer, the batch as the last axis: a learning"
    " step took a sixth less; numbers drawn in bulk, both networks in one, other settings of XLA:"
    " no clear gain; most of the rest are matrix products, which both sides compute by XLA"
)
NOTES = [
    "training loops: all environments step once, then one gradient step of Adam ({learning_rate:g})"
    " on {batch_size} of {capacity:,} transitions; network 4-64-64-2 with rectifiers, discount"
    " {discount}, no double estimates, target copied every {target_every} steps, {warm_up:,} random"
    " steps before, epsilon 1 to {epsilon_end} over {epsilon_over:,} steps. One thread; timed after"
    " the warm-up; each learner first reaches a greedy return of 100".format(**SCHEDULE._asdict()),
    "training loops, not alike: rejax draws a batch without replacement; the loss of"
    " stable-baselines3 is Huber's; where 500 steps cut an episode off, rejax takes it for a"
    " fall, stable-baselines3 goes on from the last view, ours leaves that step out. rejax"
    " 0.1.3 gets gymnax 1.0 by an adapter that joins its two kinds of end",
]


def rows(rounds: int) -> list[Row]:
    """Returns all rows.

    Raises:
        CalledProcessError: a learner did not learn, or did not run.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.loop", str(rounds)],
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    times = json.loads(ended.stdout).items()
    return rows_of({name: Measured(np.array(values), start) for name, (values, start) in times})


def rows_of(times: dict[str, Measured]) -> list[Row]:
    """Returns a row for each library, and for a replay of many transitions against one of few."""
    name = f"DQN on CartPole, {SCHEDULE.environments} environments"
    rejax = Row(
        f"{name}; before: rejax",
        UNIT,
        times["ours"],
        times["rejax"],
        without=Without("the scan: each turn is a call from Python", times["by call"]),
        goal=Goal(2.5, "before"),
        against="rejax",
        tried=TRIED,
    )
    baselines = rejax._replace(
        name=f"{name}; before: stable-baselines3",
        before=times["stable-baselines3"],
        goal=Goal(15, "before"),
        against="stable-baselines3",
    )
    small, large = CAPACITIES
    capacity = Row(
        f"  {large:,} transitions kept, all full",
        UNIT,
        times[f"full {large}"],
        times[f"full {small}"],
        goal=Goal(0.8, "before"),
        against=f"{small:,} transitions",
    )
    return [rejax, baselines, capacity]


# In a process of its own.


def measured(rounds: int) -> dict[str, Any]:
    """Returns the times by name.

    Raises:
        NotTheSame: a learner does not learn.
    """
    steps = TURNS * SCHEDULE.environments
    learners = {
        "ours": (sides.ours(SCHEDULE), steps),
        "rejax": (sides.rejax(SCHEDULE), steps),
        "stable-baselines3": (sides.stable_baselines3(SCHEDULE), SLOW_STEPS),
    }
    for name, (side, steps_a_call) in learners.items():
        first_call = sides.LEARNT_AFTER if name == "stable-baselines3" else steps_a_call
        sides.refuse_unlearnt(name, side, first_call)
    jax.clear_caches()  # so that the first call compiles
    contestants = {name: side.contestant(count) for name, (side, count) in learners.items()}
    contestants["by call"] = sides.ours(SCHEDULE, turns_a_call=1).contestant(steps)
    times = race(contestants, rounds) | race(full_replays(steps), rounds)
    return {name: (item.values.tolist(), item.compile_seconds) for name, item in times.items()}


def full_replays(steps: int) -> dict[str, Contestant]:
    """Returns ours with replays of several capacities, all full."""
    result = {}
    for capacity in CAPACITIES:
        side = sides.ours(SCHEDULE._replace(capacity=capacity), warm_up=capacity)
        result[f"full {capacity}"] = side.contestant(steps)
    return result


if __name__ == "__main__":
    json.dump(measured(int(sys.argv[1])), sys.stdout)
