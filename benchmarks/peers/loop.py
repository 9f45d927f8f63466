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

from benchmarks.harness import Contestant, Measured, race
from benchmarks.peers.cartpole import sides
from benchmarks.peers.cartpole.dqn import Schedule
from benchmarks.table import Goal, Point, Row, Without

SCHEDULE = Schedule()
LEAST_TURNS, LEAST_STEPS, SLOW_STEPS = 300, 1_200, 1_000
"""Of a call, and of one of stable-baselines3. The first, which is not timed, holds the warm-up of
rejax.
"""
ENVIRONMENTS = (1, 100)
"""Beside those of SCHEDULE."""
REJAX, BASELINES = "rejax", "stable-baselines3"
SMALL, LARGE, LARGEST = 10_000, 100_000, 1_000_000
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
    " the warm-up".format(**SCHEDULE._asdict()),
    (
        "training loops, not alike: rejax draws a batch without replacement; the loss of"
        " stable-baselines3 is Huber's; where 500 steps cut an episode off, rejax takes it for a"
        " fall, stable-baselines3 goes on from the last view, ours leaves that step out. rejax"
        " 0.1.3 gets gymnax 1.0 by an adapter that joins its two kinds of end"
    ),
    (
        "training loops: limit is the products of the 64 x 64 layer alone, nine tenths of all, in"
        " NumPy"
    ),
]


def rows(rounds: int) -> tuple[list[Row], list[str]]:
    """Returns all rows, and notes on them.

    Raises:
        CalledProcessError: a learner did not learn, or did not run.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.loop", str(rounds)],
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = json.loads(ran.stdout)
    times = {
        name: Measured(np.array(values), seconds)
        for name, (values, seconds) in lines["times"].items()
    }
    return rows_of(times), [*NOTES, *lines["notes"]]


def rows_of(times: dict[str, Measured]) -> list[Row]:
    """Returns the rows; a missing side leaves its comparison empty."""
    local, lanes = times[named("ours")], SCHEDULE.environments
    without = Without("the scan: each turn is a call from Python", times["by call"])
    name = f"DQN on CartPole, {lanes} environments"
    row = Row(
        f"{name}; before: {REJAX}",
        UNIT,
        local,
        times.get(named(REJAX)),
        limit=times["limit"],
        without=without,
        goal=Goal(2.5, "before"),
        against=REJAX,
        tried=TRIED,
        point=environments(lanes),
    )
    of_baselines = row._replace(
        name=f"{name}; before: {BASELINES}",
        before=times.get(BASELINES),
        goal=Goal(15, "before"),
        against=BASELINES,
        point=None,
    )
    plain = row._replace(limit=None, without=None, goal=None, tried="")
    result = [row, of_baselines]
    for lanes in ENVIRONMENTS:
        schedule = SCHEDULE._replace(environments=lanes)
        result.append(
            compared(plain, f"  environments: {lanes}", schedule, times)._replace(
                point=environments(lanes)
            )
        )
    result.append(
        compared(plain, f"  {LARGE:,} transitions kept", with_capacity(LARGE), times)._replace(
            point=None
        )
    )
    return [*result, *capacity_rows(plain, times)]


def compared(plain: Row, name: str, schedule: Schedule, times: dict[str, Measured]) -> Row:
    """Compares another schedule with rejax."""
    return plain._replace(
        name=f"{name}; before: {REJAX}",
        ours=times[named("ours", schedule)],
        before=times.get(named(REJAX, schedule)),
    )


def capacity_rows(plain: Row, times: dict[str, Measured]) -> list[Row]:
    """Compares full rings with a small full one."""
    small = times["full " + named("ours", with_capacity(SMALL))]
    result = []
    for capacity in (SMALL, LARGE, LARGEST):
        local = times["full " + named("ours", with_capacity(capacity))]
        point = Point("training loop: transitions kept", "transitions", capacity)
        row = plain._replace(
            name=f"  {capacity:,} transitions kept, all full", ours=local, before=None, point=point
        )
        if capacity > SMALL:
            row = row._replace(before=small, against=f"{SMALL:,} transitions")
        result.append(row._replace(goal=Goal(0.8, "before") if capacity == LARGEST else None))
    return result


def environments(lanes: int) -> Point:
    return Point("training loop: environments", "environments", lanes)


def with_capacity(capacity: int) -> Schedule:
    return SCHEDULE._replace(capacity=capacity)


def named(side: str, schedule: Schedule = SCHEDULE) -> str:
    return f"{side}, {schedule.environments} x {schedule.capacity}"


# In a process of its own.


def measured(rounds: int) -> dict[str, Any]:
    """Times by name, and what is missing.

    Raises:
        NotTheSame: a learner does not learn.
    """
    makers, notes = importable()
    learners = {name: make(SCHEDULE) for name, make in makers.items()}
    steps = {name: steps_of(SCHEDULE) for name in learners} | {BASELINES: sides.LEARNT_AFTER}
    learnt = {
        name: sides.refuse_unlearnt(name, side, steps[name]) for name, side in learners.items()
    }
    lines = ", ".join(f"{name} {brought:.0f}" for name, brought in learnt.items())
    notes.append(
        f"training loops, greedy return after {sides.LEARNT_AFTER:,} steps, of 500: {lines}"
    )
    jax.clear_caches()  # so that the first call compiles
    times = race(main_contestants(learners), rounds)
    for lanes in ENVIRONMENTS:
        times |= race(alike(makers, SCHEDULE._replace(environments=lanes)), rounds)
    times |= race(alike(makers, with_capacity(LARGE)), rounds)
    times |= race(full(), rounds)
    return {
        "times": {
            name: (each.values.tolist(), each.compile_seconds) for name, each in times.items()
        },
        "notes": notes,
    }


def importable() -> tuple[dict[str, Any], list[str]]:
    """Returns how to build each side, and notes on those that are missing."""
    makers: dict[str, Any] = {"ours": sides.ours}
    notes = []
    for name, module, make in (
        (REJAX, "rejax", sides.rejax),
        (BASELINES, "stable_baselines3", sides.stable_baselines3),
    ):
        try:
            __import__(module)
            makers[name] = make
        except ImportError as error:
            notes.append(f"training loops: {name} is not compared: {error}")
    return makers, notes


def main_contestants(learners: dict[str, sides.Side]) -> dict[str, Contestant]:
    """Returns all contestants of SCHEDULE."""
    steps = steps_of(SCHEDULE)
    result = {
        named(name): side.contestant(steps) for name, side in learners.items() if name != BASELINES
    }
    if BASELINES in learners:
        result[BASELINES] = learners[BASELINES].contestant(SLOW_STEPS)
    by_call = sides.ours(SCHEDULE, turns_a_call=1).contestant(steps)
    return result | {"by call": by_call, "limit": sides.products(SCHEDULE, LEAST_TURNS)}


def alike(makers: dict[str, Any], schedule: Schedule) -> dict[str, Contestant]:
    """Returns the compiled contestants of another schedule."""
    compiled = [name for name in makers if name != BASELINES]
    return {
        named(name, schedule): makers[name](schedule).contestant(steps_of(schedule))
        for name in compiled
    }


def full() -> dict[str, Contestant]:
    """Ours, of several capacities, as much in each ring as it holds."""
    result = {}
    for capacity in (SMALL, LARGE, LARGEST):
        schedule = with_capacity(capacity)
        side = sides.ours(schedule, warm_up=capacity)
        result["full " + named("ours", schedule)] = side.contestant(steps_of(schedule))
    return result


def steps_of(schedule: Schedule) -> int:
    """Returns the environment steps of a call."""
    return max(LEAST_STEPS, LEAST_TURNS * schedule.environments)


if __name__ == "__main__":
    json.dump(measured(int(sys.argv[1])), sys.stdout)
