"""config -> rows about one gradient step of allo: the plain loop, the seed's way, this project's, and parts of it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, Times, race
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import RowBuffer, sample_searching, sample_with_terminal_table
from benchmarks.table import Goal, NotTheSame, Row
from quatrain.models.allo import spectrum
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import Data, Learner, draw, init_learner, inputs_for, objective, run_chunk, tables
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample

STEPS = 100  # of a turn


class World(NamedTuple):
    """A layout's data in both forms, and a learner that has not learned yet."""

    config: AlloConfig
    dataset: Dataset
    data: Data
    buffer: RowBuffer
    learner: Learner


class Arm:
    """A learner that goes on where it stopped: each call is STEPS more steps."""

    def __init__(self, advance: Callable[[Any], Any], state: Any) -> None:
        self.advance, self.state, self.steps = advance, state, 0

    def __call__(self) -> None:
        self.state = jax.block_until_ready(self.advance(self.state))
        self.steps += STEPS


def world_of(config: AlloConfig, seed: int) -> World:
    dataset = collect(config, seed)
    learner = init_learner(config, dataset, seed)
    data = Data(inputs_for(config, learner, dataset), jax.tree.map(jnp.asarray, dataset.train), None, None)
    return World(config, dataset, data, rows_of(dataset.train), learner)


def rows_of(episodes: Episodes) -> RowBuffer:
    """The reference's buffer with the same trajectories, one a row; they must be equally long."""
    slots = int(episodes.horizon[0]) + 1
    states, ended = episodes.state.reshape(-1, slots), episodes.horizon.reshape(-1, slots) == 0
    buffer = RowBuffer(len(states), slots)
    for obs, terminals in zip(states, ended, strict=True):
        buffer.add_episode(obs, terminals)
    return buffer


def step_rows(world: World, rounds: int) -> tuple[list[Row], str]:
    """Every way of making a step on the original's own map, the whole one first."""
    arms = main_arms(world) | {
        "table": looping(world, sample_with_terminal_table, reference.three_calls(world.config)),
        "three": ours(world, encoder_rows="batch"),
        "one": scanning(world, reference.one_call(world.config), world.data.inputs),
        "one_hot": scanning(world, reference.one_hot_of_table(world.config, world.data.inputs), None),
        "fetching": ours(world, record_every=1),
    }
    times, note = compared(world, arms, rounds)
    part = partial(Row, unit="ms/step", before=times["before"], seed_way=times["seed"])
    return [
        whole_row(world, times, Goal(5, "before")),
        part("  seed's buffer alone", "001", "~5x", ours=times["table"]),
        part("  seed's buffer and one encoder call", "000-1, 000-2", "60-80 %", ours=times["seed"]),
        part("  scan, three encoder calls", "000-4", "5-10 %", ours=times["three"]),
        part("  scan, one call of all batches", "000-2", "10-20 %", ours=times["one"]),
        part("  scan, table, one-hot product", "-", "-", ours=times["one_hot"]),
        part("  ours, fetched every step", "000-6", "minimal", ours=times["fetching"]),
    ], note


def step_row(world: World, rounds: int) -> tuple[Row, str]:
    """The whole step on a larger map, where encoding every state pays less or not at all: never slower."""
    times, note = compared(world, main_arms(world), rounds)
    return whole_row(world, times, Goal(1, "before")), note


def main_arms(world: World) -> dict[str, "Arm"]:
    return {
        "before": looping(world, sample_searching, reference.three_calls(world.config)),
        "seed": looping(world, sample_with_terminal_table, reference.one_call(world.config)),
        "ours": ours(world),
    }


def compared(world: World, arms: dict[str, "Arm"], rounds: int) -> tuple[dict[str, Times], str]:
    """Equality first, then times, then what the timed steps taught."""
    refuse_another_gradient(world)
    times = race({name: Contestant(arm, STEPS) for name, arm in arms.items()}, rounds)
    return times, learned(world, arms)


def whole_row(world: World, times: dict[str, Times], goal: Goal) -> Row:
    name = f"step, {world.config.env.map.name} ({len(world.data.inputs)} states)"
    return Row(name, "000 overall", "2-3x", "ms/step", times["ours"], times["before"], times["seed"], goal)


def looping(world: World, sample_rows: reference.Sample, encode: reference.Encode) -> Arm:
    """The reference's loop."""
    jitted_step = jax.jit(partial(reference.step, config=world.config, encode=encode))
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(0)

    def advance(state: reference.State) -> reference.State:
        return reference.learn(rng, state, world.buffer, table, world.config, sample_rows, jitted_step, range(STEPS))[0]

    return Arm(advance, reference.start(world.config, world.learner))


def ours(world: World, **train: Any) -> Arm:
    """The project's program, and the one transfer of what it recorded."""
    config = world.config.model_copy(update={"train": world.config.train.model_copy(update=train)})

    def advance(learner: Learner) -> Learner:
        for _ in range(STEPS // config.train.record_every):
            learner, recorded = run_chunk(config, learner, world.data)
            jax.device_get(recorded)
        return learner

    return Arm(advance, world.learner)


def scanning(world: World, encode: reference.Encode, table: jax.Array | None) -> Arm:
    """The reference's step on the project's sampler in one scan; without a table the encoder is given states."""
    config = world.config

    @jax.jit
    def chunk(state: reference.State, first: jax.Array, episodes: Episodes) -> Any:
        def body(state: reference.State, number: jax.Array) -> Any:
            key = jax.random.fold_in(world.learner.base_key[0], number)
            inputs = batches(sample(key, episodes, config.train.batch_size, config.train.discounts), table)
            return reference.step(state, inputs, config, encode)

        return jax.lax.scan(body, state, first + jnp.arange(config.train.record_every))

    def advance(stepped: tuple[reference.State, int]) -> tuple[reference.State, int]:
        state, number = stepped
        for _ in range(STEPS // config.train.record_every):
            state, recorded = chunk(state, jnp.int32(number), world.data.episodes)
            jax.device_get(recorded)
            number += config.train.record_every
        return state, number

    return Arm(advance, (reference.start(world.config, world.learner), 0))


def batches(batch: Batch, table: jax.Array | None) -> reference.Inputs:
    """The three batches of a step, as inputs out of a table or as states."""
    states = batch.state, batch.later_state, batch.constraint_states[0]
    return states if table is None else (table[states[0]], table[states[1]], table[states[2]])


def first_inputs(world: World) -> reference.Inputs:
    """The batches of the learner's first step."""
    config, key = world.config, jax.random.fold_in(world.learner.base_key[0], 0)
    batch = sample(key, world.data.episodes, config.train.batch_size, config.train.discounts)
    return batches(batch, world.data.inputs)


def refuse_another_gradient(world: World) -> None:
    """Loss and gradient of project and reference on one batch must agree.

    Raises:
        NotTheSame: they do not.
    """
    config, data = world.config, world.data
    learner = jax.tree.map(lambda leaf: leaf[0], world.learner)
    batch = draw(config.train, data, learner.base_key, jnp.int32(0))
    state, inputs = reference.start(config, world.learner), first_inputs(world)
    project = jax.jit(jax.value_and_grad(lambda params: objective(params, config, learner, data, batch)[0]))
    expected = jax.tree.leaves(project(state.params))
    for encode in (reference.three_calls(config), reference.one_call(config)):
        plain = jax.jit(jax.value_and_grad(partial(reference.loss, config=config, encode=encode), has_aux=True))
        (value, _), gradients = plain(state.params, state, inputs)
        for one, other in zip(expected, jax.tree.leaves((value, gradients)), strict=True):
            if not np.allclose(one, other, rtol=1e-3, atol=1e-5 * max(1.0, float(jnp.abs(other).max()))):
                raise NotTheSame(
                    f"{config.env.map.name}: loss or gradient of project and reference differ on one batch"
                )


def learned(world: World, arms: dict[str, Arm]) -> str:
    """How well the contestants' tables fit the truth after the steps that were timed.

    Raises:
        NotTheSame: one did not learn, seen from L at the first duals, which fell less than by half.
    """
    untrained = fit(world, reference.start(world.config, world.learner).params)
    found = {name: fit(world, arms[name].state.params) for name in ("before", "seed")}
    found["ours"] = fit(world, reference.start(world.config, arms["ours"].state).params)
    name, steps = world.config.env.map.name, arms["ours"].steps
    for contestant, (_, loss) in found.items():
        if not loss < untrained.loss / 2:
            raise NotTheSame(
                f"{name}: {contestant} has loss {loss:.3g} after {steps} steps, {untrained.loss:.3g} before"
            )
    reached = ", ".join(f"{contestant} {cosine:.2f}" for contestant, (cosine, _) in found.items())
    return (
        f"{name}, mean cosine after {steps:,} steps, early in the learning and each with its own random stream: "
        f"{reached}; untrained {untrained.cosine:.2f}"
    )


class Fit(NamedTuple):
    """Mean cosine with the truth of the data, and L of one batch at the first duals and barrier."""

    cosine: float
    loss: float


def fit(world: World, params: Any) -> Fit:
    """How close an encoder came."""
    config, dataset = world.config, world.dataset
    operator = spectrum.operator(dataset.train, len(world.data.inputs), config.train.discounts)
    truth = spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol)
    table = tables(config, world.learner._replace(params=jax.tree.map(lambda leaf: leaf[None], params)), dataset)[0]
    state, inputs = reference.start(config, world.learner), first_inputs(world)
    loss, _ = reference.loss(params, state, inputs, config, reference.three_calls(config))
    return Fit(float(spectrum.cosine(table, truth).mean()), float(loss))
