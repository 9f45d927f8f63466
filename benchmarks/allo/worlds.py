"""config -> a layout's data for both sides, their programs, and the check that they agree."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reference import allo as reference
from benchmarks.reference.allo_terms import proposed_errors
from benchmarks.reference.replay_loop import RowBuffer
from benchmarks.table import NotTheSame
from quatrain.models.allo import spectrum
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import (
    Data,
    State,
    draw,
    init_state,
    inputs_for,
    objective,
    tables,
)
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample


class Programs(NamedTuple):
    """Holds the reference's compiled functions; independent of the map, so compiled once."""

    original: reference.Step
    one_call: reference.Step
    proposed: reference.Step
    gradient: Any
    gradient_of_one_call: Any


class World(NamedTuple):
    """Holds a layout's data in both forms, and an untrained state."""

    config: AlloConfig
    dataset: Dataset
    data: Data
    buffer: RowBuffer
    state: State
    programs: Programs


class Fit(NamedTuple):
    """Holds the mean cosine with the truth, and L of one batch at the initial duals and barrier."""

    cosine: float
    loss: float


def programs_of(config: AlloConfig) -> Programs:
    three = reference.three_calls(config)
    single = reference.one_call(config)

    def step(**parts: Any) -> reference.Step:
        return jax.jit(partial(reference.step, config=config, **parts))

    def gradient(encode: reference.Encode) -> Any:
        return jax.jit(
            jax.value_and_grad(partial(reference.loss, config=config, encode=encode), has_aux=True)
        )

    return Programs(
        step(encode=three),
        step(encode=single),
        step(encode=single, errors=proposed_errors),
        gradient(three),
        gradient(single),
    )


def world_of(config: AlloConfig, seed: int, programs: Programs | None = None) -> World:
    """Returns the world of a config; reuses programs of the same network and training."""
    dataset = collect(config, seed)
    state = init_state(config, dataset, seed)
    data = Data(
        inputs_for(config, state, dataset), jax.tree.map(jnp.asarray, dataset.train), None, None
    )
    return World(
        config, dataset, data, rows_of(dataset.train), state, programs or programs_of(config)
    )


def rows_of(episodes: Episodes) -> RowBuffer:
    """Returns the reference's buffer, one trajectory a row; they must be equally long."""
    slots = int(episodes.horizon[0]) + 1
    states, ended = episodes.state.reshape(-1, slots), episodes.horizon.reshape(-1, slots) == 0
    buffer = RowBuffer(len(states), slots)
    for obs, terminals in zip(states, ended, strict=True):
        buffer.add_episode(obs, terminals)
    return buffer


def batches(batch: Batch, table: jax.Array | None) -> reference.Inputs:
    """Returns the three batches of a step, as inputs from a table or as states."""
    states = batch.state, batch.later_state, batch.constraint_states[0]
    return states if table is None else reference.three_gathers(table, states)


def first_inputs(world: World) -> reference.Inputs:
    """Returns the batches of the learner's first step."""
    config, key = world.config, jax.random.fold_in(world.state.base_key[0], 0)
    batch = sample(key, world.data.episodes, config.train.batch_size, config.train.discounts)
    return batches(batch, world.data.inputs)


def gradient_here(world: World) -> Any:
    """Returns a compiled function from encoder parameters to the project's loss and gradient."""
    config, data = world.config, world.data
    state = jax.tree.map(lambda leaf: leaf[0], world.state)
    batch = draw(config.train, data, state.base_key, jnp.int32(0))
    # The batch is an argument: a constant would be gathered while compiling.
    program = jax.jit(
        jax.value_and_grad(lambda params, drawn: objective(params, config, state, data, drawn)[0])
    )
    return lambda params: program(params, batch)


def refuse_another_gradient(world: World) -> None:
    """Raises unless loss and gradient of project and reference agree on one batch.

    Raises:
        NotTheSame: they do not.
    """
    state, inputs = reference.start(world.config, world.state), first_inputs(world)
    expected = jax.tree.leaves(gradient_here(world)(state.params))
    for program in (world.programs.gradient, world.programs.gradient_of_one_call):
        (value, _), gradients = program(state.params, state, inputs)
        for ours, theirs in zip(expected, jax.tree.leaves((value, gradients)), strict=True):
            tolerance = 1e-5 * max(1.0, float(jnp.abs(theirs).max()))
            if not np.allclose(ours, theirs, rtol=1e-3, atol=tolerance):
                name = world.config.env.map.name
                raise NotTheSame(
                    f"{name}: loss or gradient of project and reference differ on one batch"
                )


def truth_of(world: World) -> spectrum.Spectrum:
    """Computes the true spectrum of the world's data."""
    config = world.config
    operator = spectrum.operator(
        world.dataset.train, len(world.data.inputs), config.train.discounts
    )
    return spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol)


def fit(world: World, truth: spectrum.Spectrum, params: Any) -> Fit:
    """Computes how close an encoder is to the truth."""
    state = world.state._replace(params=jax.tree.map(lambda leaf: leaf[None], params))
    table = tables(world.config, state, world.dataset)[0]
    state, inputs = reference.start(world.config, world.state), first_inputs(world)
    (loss, _), _ = world.programs.gradient(params, state, inputs)
    return Fit(float(spectrum.cosine(table, truth).mean()), float(loss))
