"""config -> both sides from nothing to one greedy return, on their own schedules"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.harness import Goal, Measured, NotComparable, Report, Row
from benchmarks.iqn.sides import (
    FEW,
    SAME_TARGET,
    changed,
    config_of,
    params_of,
    ring_of,
    settings_of,
)
from benchmarks.iqn.whole import program_of
from benchmarks.reference import iqn as reference
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from pipeline.runtime import console
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig

RETURN = 100.0
"""Greedy, of an agent and episode: 0.94 of what an oracle with the agents' view earns."""
WORLDS = 256
EPISODES = 50
"""Of the reference between evaluations: 12,500 agent-steps."""
MOST_EPISODES = 2000
Run = Iterator[Callable[[], float]]
"""A training that yields what evaluates it: the greedy return."""


def measure(root: Path, runs: int) -> Report:
    """Measures each side on its own schedule, runs alternating, each with another seed."""
    config = config_of(root, preset=None)
    plain_config = config_of(root, train={"loss": SAME_TARGET})
    seconds: dict[str, list[float]] = {"ours": [], "before": []}
    for number in range(runs):
        jax.clear_caches()  # so that every run compiles
        seconds["ours"].append(until_return("ours", own_run(config, number)))
        seconds["before"].append(until_return("before", plain_run(plain_config, number)))
    times = {name: Measured(np.array(each)) for name, each in seconds.items()}
    name, goal = f"greedy return {RETURN:g} from nothing", Goal(4, "before")
    row = Row(name, "s", **times, goal=goal, claims=("agents-overall",))
    notes = [f"{WORLDS} worlds evaluate both, which is not timed; ours compiles anew in each run"]
    return Report([row], notes, jax.devices()[0].device_kind)


def until_return(name: str, run: Run) -> float:
    """Trains until the return is reached; returns the seconds without evaluations."""
    seconds, begin = 0.0, time.perf_counter()
    for greedy in run:
        seconds += time.perf_counter() - begin
        earned = greedy()
        console.info(f"{name}: {seconds:.0f} s: greedy return {earned:.1f}")
        if earned >= RETURN:
            return seconds
        begin = time.perf_counter()
    raise NotComparable(f"time to a return: {name} ended without a greedy return of {RETURN:g}")


def own_run(config: IqnConfig, number: int) -> Run:
    """Yields the project's training, evaluated as often as its config says."""
    state = train.init_state(config, collect(config, number), number)
    program = program_of(config, state)
    for chunk in range(1, config.train.steps // config.train.record_every + 1):
        program()
        if chunk * config.train.record_every % config.train.evaluate_every == 0:
            params = train.evaluation_params(config, program.state)
            yield partial(evaluate, config, params)


def plain_run(config: IqnConfig, number: int) -> Run:
    """Yields the reference's training."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    rings = [ring_of(config) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, rings, rng, config.train.batch_size)
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES == 0:
            yield lambda: evaluate(config, jax.tree.map(lambda leaf: leaf[None], params_of(agents)))


def evaluate(config: IqnConfig, params: Any) -> float:
    """Computes the mean return of a greedy episode, in the same envs for both sides."""
    config = changed(config, acting=FEW, evaluation_worlds=WORLDS)
    world, keys = make_world(config.env.rules), train.base_keys(config, 0)
    return float(train.greedy_returns(config, world, params, keys).mean())
