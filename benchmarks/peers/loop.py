"""rounds -> rows about whole training loops: deep Q-learning on CartPole by three libraries

They run in a process of their own with one thread, the fastest setting of all three at this size.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.harness import Contestant, Goal, Measured, NotComparable, Row, Without, race
from benchmarks.peers.cartpole import dqn, world
from benchmarks.peers.cartpole.dqn import Schedule

SCHEDULE = Schedule()
TURNS, SLOW_STEPS = 300, 1_000
"""Turns of a call, and environment steps of one of stable-baselines3. The first call, which is not
timed, holds the warm-up of rejax.
"""
CAPACITIES = (10_000, 1_000_000)
"""Transitions that a replay keeps."""
UNIT = "us/agent-step"
SEED, EVALUATION_WORLDS = 0, 32
LEARNT, LEARNT_AFTER = 100.0, 42_000
"""What a greedy episode must bring at least, of 500, after so many steps; a learner that has learnt
nothing gets 10.
"""
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
        "ours": (ours(SCHEDULE), steps),
        "rejax": (rejax(SCHEDULE), steps),
        "stable-baselines3": (stable_baselines3(SCHEDULE), SLOW_STEPS),
    }
    for name, (side, steps_a_call) in learners.items():
        first_call = LEARNT_AFTER if name == "stable-baselines3" else steps_a_call
        refuse_unlearnt(name, side, first_call)
    jax.clear_caches()  # so that the first call compiles
    contestants = {name: side.contestant(count) for name, (side, count) in learners.items()}
    contestants["by call"] = ours(SCHEDULE, turns_a_call=1).contestant(steps)
    times = race(contestants, rounds)
    full = [SCHEDULE._replace(capacity=each, warm_up=each) for each in CAPACITIES]
    works = {f"full {each.capacity}": ours(each).contestant(steps) for each in full}
    return times | race(works, rounds)


# Learners that train further with every call.


class Side(NamedTuple):
    """Holds a learner after its warm-up. `train` continues by so many steps, `act` is greedy."""

    train: Callable[[int], object]
    act: Callable[[Array], Any]

    def contestant(self, steps: int) -> Contestant:
        return Contestant(lambda: self.train(steps), steps)


def ours(schedule: Schedule, turns_a_call: int | None = None) -> Side:
    """Returns this project's learner, compiled whole, or called from Python."""
    key = jax.random.key(SEED)
    stored = [dqn.warmed_up(schedule, key)]

    def train(steps: int) -> None:
        turns = steps // schedule.environments
        for _ in range(turns // (turns_a_call or turns)):
            stored[0] = dqn.train(schedule, stored[0], key, turns_a_call or turns)
        jax.block_until_ready(stored[0])

    return Side(train, lambda observed: dqn.greedy(stored[0].params, observed))


def rejax(schedule: Schedule) -> Side:
    """Returns rejax's learner without double estimates, compiled whole with its state donated; it
    begins with a warm-up, and the target is a copy.
    """
    import rejax
    from gymnax.environments.classic_control.cartpole import CartPole

    class FiveValues(CartPole):  # type: ignore[misc]
        """Adapts gymnax 1.0, which separates two kinds of episode end, to rejax 0.1.3."""

        def step(self, *arguments: Any) -> tuple[Any, ...]:
            observed, state, reward, terminated, truncated, about = super().step(*arguments)
            return observed, state, reward, terminated | truncated, about

    environment = FiveValues()
    algorithm = rejax.DQN.create(
        env=environment,
        env_params=environment.default_params,
        agent_kwargs={"activation": "relu"},
        num_envs=schedule.environments,
        buffer_size=schedule.capacity,
        fill_buffer=schedule.warm_up,
        batch_size=schedule.batch_size,
        num_epochs=1,
        ddqn=False,
        learning_rate=schedule.learning_rate,
        gamma=schedule.discount,
        target_update_freq=schedule.target_every,
        polyak=0.0,
        eps_start=1.0,
        eps_end=schedule.epsilon_end,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda *_: ())
    stored = [jax.jit(algorithm.init_state)(jax.random.key(SEED))]

    @cache
    def program(steps: int) -> Callable[[Any], Any]:
        share = schedule.epsilon_over / steps
        part = algorithm.replace(total_timesteps=steps, eval_freq=steps, exploration_fraction=share)
        return jax.jit(lambda state: part.train(train_state=state)[0], donate_argnums=0)

    def train(steps: int) -> None:
        stored[0] = jax.block_until_ready(program(steps)(stored[0]))

    def act(observed: Array) -> Array:
        return jnp.argmax(algorithm.agent.apply(stored[0].q_ts.params, observed), axis=1)

    return Side(train, act)


def stable_baselines3(schedule: Schedule) -> Side:
    """Returns stable-baselines3's learner, with environments in its own process."""
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    make = [lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * schedule.environments
    learner = DQN(
        "MlpPolicy",
        DummyVecEnv(make),
        policy_kwargs={"net_arch": list(schedule.hidden)},
        buffer_size=schedule.capacity,
        learning_starts=schedule.warm_up,
        batch_size=schedule.batch_size,
        train_freq=1,
        gradient_steps=1,
        learning_rate=schedule.learning_rate,
        gamma=schedule.discount,
        target_update_interval=schedule.target_every,
        tau=1.0,
        max_grad_norm=float("inf"),
        exploration_fraction=schedule.epsilon_over / LEARNT_AFTER,  # of its first call
        exploration_final_eps=schedule.epsilon_end,
        seed=SEED,
        device="cpu",
    )

    def train(steps: int) -> None:
        learner.learn(steps, reset_num_timesteps=learner.num_timesteps == 0)

    return Side(train, lambda obs: learner.predict(np.asarray(obs), deterministic=True)[0])


def refuse_unlearnt(name: str, side: Side, steps_a_call: int = LEARNT_AFTER) -> float:
    """Trains, then returns the return of greedy episodes.

    Raises:
        NotComparable: the return is too small.
    """
    for _ in range(LEARNT_AFTER // steps_a_call):
        side.train(steps_a_call)
    result = greedy_return(side.act)
    if result < LEARNT:
        after = f"after {LEARNT_AFTER:,} steps, less than {LEARNT:g}"
        raise NotComparable(f"{name}: a greedy return of {result:.0f} {after}")
    return result


def greedy_return(act: Callable[[Array], Any]) -> float:
    """Returns the mean over the first episodes of some environments, the same for every learner."""
    starts = world.starts_of(jax.random.uniform(jax.random.key(SEED), (EVALUATION_WORLDS, dqn.OBS)))
    worlds, step = world.reset(starts), jax.jit(world.step)
    going, total = np.ones(EVALUATION_WORLDS, bool), 0
    while going.any():
        stepped = step(worlds, jnp.asarray(act(worlds.obs), jnp.int32), starts)
        worlds, total = stepped.worlds, total + going.sum()
        going &= ~np.asarray(stepped.terminated | stepped.truncated)
    return total / EVALUATION_WORLDS
