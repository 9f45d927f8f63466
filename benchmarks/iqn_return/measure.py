"""iqn: from nothing to one greedy return, ours and the original program on their own schedules

A round takes minutes, so `make bench` measures it only when it is named.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.iqn.measure import FEW
from benchmarks.iqn.sides import SAME_TARGET, changed, config_of, empty_ring, params_of, settings_of
from benchmarks.reference import iqn as reference
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.rows import ORIGINAL, OURS, Claim, Row, Times
from benchmarks.timing import NotComparable
from pipeline.storage.params_file import read_params
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig

RETURN = 100.0
"""Greedy, of an agent and episode: 0.94 of what an oracle with the agents' view earns."""
WORLDS = 256
"""In which both are evaluated."""
EPISODES, MOST_EPISODES = 50, 2000
"""Of the original between evaluations, and in all."""
Training = Iterator[tuple[int, Callable[[], float]]]
"""Yields agent-steps, prefill included, and a function that evaluates: the greedy return."""


def measure(root: Path, rounds: int) -> list[Row]:
    """Trains with another seed in each round; ours compiles anew in each."""
    config = read_params(root).iqn
    original = config_of(root, train={"loss": SAME_TARGET})
    seconds: dict[str, list[float]] = {ORIGINAL: [], OURS: []}
    steps: dict[str, list[int]] = {ORIGINAL: [], OURS: []}
    for number in range(rounds):
        jax.clear_caches()
        for side, training in {
            OURS: own_training(config, number),
            ORIGINAL: plain_training(original, number),
        }.items():
            used, agent_steps = until_return(side, training)
            seconds[side].append(used)
            steps[side].append(agent_steps)
    ranges = [f"{side} {min(each):,} to {max(each):,}" for side, each in steps.items()]
    return [
        Row(
            f"from nothing to a greedy return of {RETURN:g}",
            "s",
            {side: Times(each) for side, each in seconds.items()},
            Claim("agents", "4-12x in all", 4.0),
            f"agent-steps: {', '.join(ranges)}; compiling is in the times, evaluations are not",
        )
    ]


def until_return(side: str, training: Training) -> tuple[float, int]:
    """Returns the seconds and agent-steps until the return is reached, without evaluations."""
    seconds, begin = 0.0, time.perf_counter()
    for agent_steps, evaluate in training:
        seconds += time.perf_counter() - begin
        if evaluate() >= RETURN:
            return seconds, agent_steps
        begin = time.perf_counter()
    raise NotComparable(f"{side} ended without a greedy return of {RETURN:g}")


def own_training(config: IqnConfig, number: int) -> Training:
    """Yields after each record."""
    state = train.init_state(config, collect(config, number), number)
    world = make_world(config.env.rules)
    for _ in range(config.train.steps // config.train.record_every):
        state, _ = train.run_chunk(config, world, config.train.cycles_per_record, state)
        turns = config.collect.turns + int(state.play_state.turns[0])
        params = train.evaluation_params(config, state)
        yield config.env.agents * config.env.worlds * turns, partial(greedy, config, params)


def plain_training(config: IqnConfig, number: int) -> Training:
    """Yields every EPISODES episodes."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    rings = [empty_ring(config) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, rings, rng, config.train.batch_size)
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES == 0:
            params = jax.tree.map(lambda leaf: leaf[None], params_of(agents))
            yield rules.agents * rules.max_turns * episode, partial(greedy, config, params)


def greedy(config: IqnConfig, params: Any) -> float:
    """Computes the mean return of a greedy episode, in the same worlds for both sides."""
    acting = config.train.acting.model_copy(update=FEW)
    config = changed(config, train={"acting": acting, "evaluation_worlds": WORLDS})
    world, keys = make_world(config.env.rules), train.base_keys(config, 0)
    return float(train.greedy_returns(config, world, (params, keys)).mean())
