"""allo: a gradient step and a batch of pairs, against the original program and two proposals"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reference import allo as reference
from benchmarks.reference import replay_loop
from benchmarks.reference.replay_loop import RowBuffer
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Row
from benchmarks.timing import Continued, Work, check_same, race, ready
from pipeline.storage.params_file import read_params
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import (
    Data,
    State,
    draw,
    init_state,
    make_data,
    objective,
    run_chunk,
)
from quatrain.replay.episodes.trajectories import Episodes, sample

SEED = 0
STEPS = 20
"""Of the original program in a call."""
WALKS = 100
"""Of the larger map."""
BATCHES = 1000
"""In a call of our compiled sampler."""
MANY = f"ours draws {BATCHES} batches in one compiled program, as training does"


class World(NamedTuple):
    """Holds a map's data in both forms, and an untrained state."""

    config: AlloConfig
    dataset: Dataset
    data: Data
    buffer: RowBuffer
    state: State


def measure(root: Path, rounds: int) -> list[Row]:
    """Measures on the map of the original program, and a step on a larger one."""
    world = world_of(config_of(root))
    larger = config_of(root, env={"layout": "room64"}, collect={"num_envs": WALKS})
    proposed = Claim("allo", "2-3x faster training", 2.0)
    return [
        step_row(world, rounds, {PROPOSAL: reference.PROPOSED})._replace(claim=proposed),
        step_row(world_of(larger), rounds, {}),
        *sampling_rows(world, rounds),
    ]


def config_of(root: Path, **sections: Any) -> AlloConfig:
    """Returns the preset of the original program with changed sections of allo."""
    return read_params(root, "original", {"allo": sections}).allo


def world_of(config: AlloConfig) -> World:
    dataset = collect(config, SEED)
    state = init_state(config, dataset, SEED)._replace(snapshots=None)
    return World(config, dataset, make_data(config, state, dataset), rows_of(dataset.train), state)


def rows_of(episodes: Episodes) -> RowBuffer:
    """Returns the reference's buffer, one trajectory a row; they must be equally long."""
    slots = int(episodes.horizon[0]) + 1
    states, ended = episodes.state.reshape(-1, slots), episodes.horizon.reshape(-1, slots) == 0
    buffer = RowBuffer(len(states), slots)
    for obs, terminals in zip(states, ended, strict=True):
        buffer.add_episode(obs, terminals)
    return buffer


# A step.


def step_row(world: World, rounds: int, others: Mapping[str, reference.Way]) -> Row:
    """Measures a gradient step, with its batch and what it records."""
    check_gradient(world)
    config = world.config
    ways = {ORIGINAL: reference.ORIGINAL, **others}
    works: dict[str, Work] = {side: looping(world, way) for side, way in ways.items()}

    def advance(state: State) -> tuple[State, Any]:
        state, recorded = run_chunk(config, config.train.record_every, state, world.data)
        return state, jax.device_get(recorded)

    works[OURS] = Continued(advance, world.state)
    units = dict.fromkeys(ways, STEPS) | {OURS: config.train.record_every}
    name = f"gradient step, {config.env.map.name}, {len(world.data.inputs)} states"
    return Row(name, "ms/step", race(works, rounds, units))


def looping(world: World, way: reference.Way) -> Work:
    """Runs the reference's loop."""
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(SEED)

    def advance(state: reference.State) -> Any:
        return reference.learn(rng, state, world.buffer, table, world.config, way, range(STEPS))

    return Continued(advance, reference.start(world.config, world.state))


def check_gradient(world: World) -> None:
    """Raises NotComparable unless L and its gradient agree on one batch."""
    state = reference.start(world.config, world.state)
    learner = jax.tree.map(lambda leaf: leaf[0], world.state)
    batch = draw(world.config.train, world.data, learner.base_key, jnp.int32(0))
    assert batch is not None
    states = batch.state, batch.later_state, batch.constraint_states[0]
    inputs = tuple(world.data.inputs[each] for each in states)
    gradient_of = jax.jit(jax.value_and_grad(objective, has_aux=True), static_argnums=1)
    (value, _), gradient = gradient_of(state.params, world.config, learner, world.data, batch)
    results = {OURS: (value, gradient)}
    for side, way in {ORIGINAL: reference.ORIGINAL, PROPOSAL: reference.PROPOSED}.items():
        (value, _), gradient = reference.gradient(state, inputs, world.config, way.encode)
        results[side] = value, gradient
    check_same(f"{world.config.env.map.name}: loss or gradient", results, 1e-3, 1e-5)


# Pairs.


def sampling_rows(world: World, rounds: int) -> list[Row]:
    """Measures a batch of pairs; tests/replay proves that all samplers follow the same law."""
    draws, size = samplers(world), world.config.train.batch_size
    times = race({side: ready(work) for side, work in draws.items()}, rounds, {OURS: BATCHES})
    shared = {ORIGINAL: times[ORIGINAL], OURS: times[OURS]}
    name = f"{size} pairs from rows of {int(world.dataset.train.horizon[0])}"
    snippet = Claim("allo", "50-70 % faster sampling", 1.5)
    table = Claim("replay", "~5x per sample() call", 5.0)
    return [
        Row(f"{name}, its code", "us/call", shared | {PROPOSAL: times["snippet"]}, snippet, MANY),
        Row(f"{name}, a table", "us/call", shared | {PROPOSAL: times[PROPOSAL]}, table),
    ]


def samplers(world: World) -> dict[str, Callable[[], Any]]:
    """Returns functions to pairs."""
    config, keys = world.config.train, map(jax.random.key, itertools.count())
    episodes = jax.tree.map(jnp.asarray, world.dataset.train)

    @jax.jit
    def program(key: jax.Array, episodes: Episodes) -> Any:
        def batch(key: jax.Array) -> Any:
            return sample(key, episodes, config.batch_size, config.discounts, 0)[:2]

        return jax.vmap(batch)(jax.random.split(key, BATCHES))

    ways = {
        ORIGINAL: replay_loop.sample_searching,
        "snippet": replay_loop.sample_with_snippet,
        PROPOSAL: replay_loop.sample_with_terminal_table,
    }
    rng, discount = np.random.default_rng(SEED), config.discounts[0]
    arguments = rng, world.buffer, config.batch_size, discount
    draws: dict[str, Any] = {side: partial(way, *arguments) for side, way in ways.items()}
    return draws | {OURS: lambda: program(next(keys), episodes)}
