"""rounds -> rows about whole training loops: deep Q-learning on CartPole by three libraries

They run in a process of their own with one thread, the fastest setting of all three at this size.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax

from benchmarks.harness import Goal, Measured, Row, Without, race
from benchmarks.peers.cartpole import sides
from benchmarks.peers.cartpole.dqn import Schedule

SCHEDULE = Schedule()
TURNS, SLOW_STEPS = 300, 1_000
"""Turns of a call, and environment steps of one of stable-baselines3. The first call, which is not
timed, holds the warm-up of rejax.
"""
CAPACITIES = (10_000, 1_000_000)
"""Transitions that a replay keeps."""
UNIT = "us/agent-step"
TRIED = (
    "Adam on one vector of all parameters, the batch as the last axis: a learning step took a sixth"
    " less; numbers drawn in bulk, both networks in one, other settings of XLA: no clear gain; most"
    " of the rest are matrix products, which both sides compute by XLA"
)
NOTES = [
    "training loops: ours is no model of this project, but a DQN written for this row around the"
    " project's ring; the others are the learners of their libraries",
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
        NotComparable: a learner does not learn.
    """
    os.environ |= {"NPROC": "1", "OMP_NUM_THREADS": "1"}  # the new process reads them at its start
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return rows_of(pool.submit(measured, rounds).result())


def rows_of(times: dict[str, Measured]) -> list[Row]:
    """Returns a row for each library, and for a replay of many transitions against one of few."""
    without = Without("the scan: each turn is a call from Python", times["by call"])
    name = f"DQN on CartPole, {SCHEDULE.environments} environments"
    rows = [
        Row(name, UNIT, times["ours"], times[library], without=without, against=library)
        for library in ("rejax", "stable-baselines3")
    ]
    small, large = CAPACITIES
    name, against = f"  {large:,} transitions kept, all full", f"{small:,} transitions"
    full = Row(name, UNIT, times[f"full {large}"], times[f"full {small}"], against=against)
    goals = zip([*rows, full], (2.5, 15, 0.8), (TRIED, TRIED, ""), strict=True)
    return [row._replace(goal=Goal(goal, "before"), tried=tried) for row, goal, tried in goals]


def measured(rounds: int) -> dict[str, Measured]:
    """Returns the times by name, after each learner has learnt."""
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
    times = race(contestants, rounds)
    full = [SCHEDULE._replace(capacity=each, warm_up=each) for each in CAPACITIES]
    works = {f"full {each.capacity}": sides.ours(each).contestant(steps) for each in full}
    return times | race(works, rounds)
