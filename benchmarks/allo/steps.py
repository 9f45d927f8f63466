"""config -> a map's data for both sides, and rows about one gradient step of allo"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, Goal, Row, read_config
from benchmarks.jax_work import Continued, declaring, refuse_difference, timed
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import RowBuffer
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.state import Data, State, init_state, make_data
from quatrain.models.allo.learning.step import draw, objective, run_chunk
from quatrain.replay.episodes.trajectories import Batch, Episodes

SEED = 0
STEPS = 20
"""Of the reference in a call; the slow ways take up to half a second."""
TRIED = (
    "Adam's weights written in place: +7 %, used. Other gathers, scatters, norms and matrix "
    "products of XLA: within the spread. Two thirds of a step are matrix products."
)


class World(NamedTuple):
    """Holds a map's data in both forms, and an untrained state."""

    config: AlloConfig
    settings: reference.Settings
    dataset: Dataset
    data: Data
    buffer: RowBuffer
    state: State


def config_of(root: Path, **sections: Any) -> AlloConfig:
    """Returns the preset of the original program with changed sections of allo."""
    return read_config(root, "original", "allo", sections)


def world_of(config: AlloConfig) -> World:
    dataset = collect(config, SEED)
    state = init_state(config, dataset, SEED)
    settings = reference.Settings(config.network, config.train)
    data, buffer = make_data(config, state, dataset), rows_of(dataset.train)
    return World(config, settings, dataset, data, buffer, state)


def rows_of(episodes: Episodes) -> RowBuffer:
    """Returns the reference's buffer, one trajectory a row; they must be equally long."""
    slots = int(episodes.horizon[0]) + 1
    states, ended = episodes.state.reshape(-1, slots), episodes.horizon.reshape(-1, slots) == 0
    buffer = RowBuffer(len(states), slots)
    for obs, terminals in zip(states, ended, strict=True):
        buffer.add_episode(obs, terminals)
    return buffer


def inputs_of(world: World, batch: Batch) -> reference.Inputs:
    """Returns the inputs of the three batches of a step."""
    states = batch.state, batch.later_state, batch.constraint_states[0]
    return reference.three_gathers(world.data.inputs, states)


def gradients(world: World) -> dict[str, Any]:
    """Returns functions to L and its gradient on one batch; raises NotComparable if they differ."""
    config, settings = world.config, world.settings
    state = reference.start(settings, world.state)
    learner = jax.tree.map(lambda leaf: leaf[0], world.state)
    batch = draw(config.train, world.data, learner.base_key, jnp.int32(0))
    inputs = inputs_of(world, batch)

    @jax.jit
    def ours(params, batch):  # an argument: a constant would be gathered while compiling
        gradient_of = jax.value_and_grad(objective, has_aux=True)
        (value, _), gradient = gradient_of(params, config, learner, world.data, batch)
        return value, gradient

    works = {
        "before": lambda: reference.gradient(state, inputs, settings, reference.three_calls),
        "seed_way": lambda: reference.gradient(state, inputs, settings, reference.one_call),
        "ours": lambda: ours(state.params, batch),
    }
    what = f"{config.env.map.name}: loss or gradient of one batch"
    refuse_difference(what, {name: work() for name, work in works.items()}, 1e-3, 1e-5)
    return works


def encoder_row(world: World, rounds: int) -> Row:
    """Measures L and its gradient on one batch: three encoder calls, one, or one of all states."""
    times = timed(gradients(world), rounds)
    return Row("  encoder: loss and gradient", "ms/step", **times, claims=("allo-2",))


def step_rows(world: World, rounds: int, proposals: bool = False) -> list[Row]:
    """Measures a step; with proposals also theirs, and ours without its table of states."""
    gradients(world)
    works = {"before": looping(world, reference.ORIGINAL), "ours": ours(world)}
    if proposals:
        works |= {
            "no table": ours(world, encoder_rows="batch"),
            "all": looping(world, reference.PROPOSED),
            "phase 1": looping(world, reference.PHASE_1),
        }
    row, states = declaring(timed(works, rounds), "ms/step"), len(world.data.inputs)
    name = f"step, {world.config.env.map.name} ({states} states)"
    if not proposals:
        return [row(name, goal=Goal(1, "before"), tried=TRIED)]
    without = "the table: batches are encoded", "no table"
    more = {"goal": Goal(5, "before"), "claims": ("allo-overall",), "tried": TRIED}
    phase_1 = "  phase 1: ends noted, one encoder call"
    return [
        row(name, seed_way="all", without=without, **more),
        row(phase_1, seed_way="phase 1", claims=("allo-phase-1",)),
    ]


def looping(world: World, way: reference.Way) -> Contestant:
    """Runs the reference's loop."""
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(0)

    def advance(state):
        return reference.learn(rng, state, world.buffer, table, world.settings, way, range(STEPS))

    return Contestant(Continued(advance, reference.start(world.settings, world.state)), STEPS)


def ours(world: World, **keys: Any) -> Contestant:
    """Runs the project's program, and transfers what it recorded."""
    config = world.config.model_copy(update={"train": world.config.train.model_copy(update=keys)})
    steps = config.train.record_every

    def advance(state):
        state, recorded = run_chunk(config, steps, state, world.data)
        return state, jax.device_get(recorded)

    return Contestant(Continued(advance, world.state), steps)
