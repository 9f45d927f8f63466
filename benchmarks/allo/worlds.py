"""config -> a layout's data for both sides, the programs that they run, and the check that they do the same"""

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
    """The reference's compiled functions; they read nothing of the layout, so that one compilation serves all maps."""

    original: reference.Step
    one_call: reference.Step
    proposed: reference.Step
    gradient: Any
    gradient_of_one_call: Any


class World(NamedTuple):
    """A layout's data in both forms, and a learner that has not learned yet."""

    config: AlloConfig
    dataset: Dataset
    data: Data
    buffer: RowBuffer
    state: State
    programs: Programs


class Fit(NamedTuple):
    """Mean cosine with the truth of the data, and L of one batch at the first duals and barrier."""

    cosine: float
    loss: float


def programs_of(config: AlloConfig) -> Programs:
    three, one = reference.three_calls(config), reference.one_call(config)

    def step(**chosen: Any) -> reference.Step:
        return jax.jit(partial(reference.step, config=config, **chosen))

    def gradient(encode: reference.Encode) -> Any:
        return jax.jit(
            jax.value_and_grad(partial(reference.loss, config=config, encode=encode), has_aux=True)
        )

    return Programs(
        step(encode=three),
        step(encode=one),
        step(encode=one, errors=proposed_errors),
        gradient(three),
        gradient(one),
    )


def world_of(config: AlloConfig, seed: int, programs: Programs | None = None) -> World:
    """Programs of another layout serve where network and training are the same."""
    dataset = collect(config, seed)
    state = init_state(config, dataset, seed)
    data = Data(
        inputs_for(config, state, dataset), jax.tree.map(jnp.asarray, dataset.train), None, None
    )
    return World(
        config, dataset, data, rows_of(dataset.train), state, programs or programs_of(config)
    )


def rows_of(episodes: Episodes) -> RowBuffer:
    """The reference's buffer with the same trajectories, one a row; they must be equally long."""
    slots = int(episodes.horizon[0]) + 1
    states, ended = episodes.state.reshape(-1, slots), episodes.horizon.reshape(-1, slots) == 0
    buffer = RowBuffer(len(states), slots)
    for obs, terminals in zip(states, ended, strict=True):
        buffer.add_episode(obs, terminals)
    return buffer


def batches(batch: Batch, table: jax.Array | None) -> reference.Inputs:
    """The three batches of a step, as inputs out of a table or as states."""
    states = batch.state, batch.later_state, batch.constraint_states[0]
    return states if table is None else reference.three_gathers(table, states)


def first_inputs(world: World) -> reference.Inputs:
    """The batches of the learner's first step."""
    config, key = world.config, jax.random.fold_in(world.state.base_key[0], 0)
    batch = sample(key, world.data.episodes, config.train.batch_size, config.train.discounts)
    return batches(batch, world.data.inputs)


def gradient_here(world: World) -> Any:
    """The project's loss and gradient on the learner's first batch, compiled; takes the encoder's parameters."""
    config, data = world.config, world.data
    state = jax.tree.map(lambda leaf: leaf[0], world.state)
    batch = draw(config.train, data, state.base_key, jnp.int32(0))
    # The batch as an argument: as a constant it would be picked while compiling.
    program = jax.jit(
        jax.value_and_grad(lambda params, drawn: objective(params, config, state, data, drawn)[0])
    )
    return lambda params: program(params, batch)


def refuse_another_gradient(world: World) -> None:
    """Loss and gradient of project and reference on one batch must agree.

    Raises:
        NotTheSame: they do not.
    """
    state, inputs = reference.start(world.config, world.state), first_inputs(world)
    expected = jax.tree.leaves(gradient_here(world)(state.params))
    for program in (world.programs.gradient, world.programs.gradient_of_one_call):
        (value, _), gradients = program(state.params, state, inputs)
        for one, other in zip(expected, jax.tree.leaves((value, gradients)), strict=True):
            if not np.allclose(
                one, other, rtol=1e-3, atol=1e-5 * max(1.0, float(jnp.abs(other).max()))
            ):
                name = world.config.env.map.name
                raise NotTheSame(
                    f"{name}: loss or gradient of project and reference differ on one batch"
                )


def truth_of(world: World) -> spectrum.Spectrum:
    """The exact answer to the world's data."""
    config = world.config
    operator = spectrum.operator(
        world.dataset.train, len(world.data.inputs), config.train.discounts
    )
    return spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol)


def fit(world: World, truth: spectrum.Spectrum, params: Any) -> Fit:
    """How close an encoder came."""
    state = world.state._replace(params=jax.tree.map(lambda leaf: leaf[None], params))
    table = tables(world.config, state, world.dataset)[0]
    state, inputs = reference.start(world.config, world.state), first_inputs(world)
    (loss, _), _ = world.programs.gradient(params, state, inputs)
    return Fit(float(spectrum.cosine(table, truth).mean()), float(loss))
