"""A map's free cells: walks of the uniform policy, compiled; inputs are functions of coordinates"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float32, Int, Int32

from quatrain.envs.grid import dynamics
from quatrain.envs.grid.config import Env
from quatrain.envs.grid.dynamics import AnyArray, Grid
from quatrain.envs.grid.layouts import count_states
from quatrain.errors import DatasetMismatch
from quatrain.models.allo.collect import Encode, Served
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.trajectories import (
    Episodes,
    Walks,
    empty_episodes,
    from_walks,
    smallest_type,
)

INPUT = "cells"
CONNECT = "set allo.env.layout_components: largest, or, if it is, raise allo.collect.num_envs"


class Dataset(NamedTuple):
    """Holds walks for training, independent held-out walks (may be empty), and their grid world."""

    train: Episodes
    held_out: Episodes
    grid: Grid

    @property
    def coords(self) -> Int32[AnyArray, "states 2"]:
        return self.grid.coords

    @property
    def next_state(self) -> Int32[AnyArray, "states 4"]:
        return self.grid.next_state


def collect(config: AlloConfig, seed: int) -> Dataset:
    grid = dynamics.make_grid(config.env.map)
    train_key, held_out_key = jax.random.split(jax.random.key(seed))
    return Dataset(
        train=_collect_walks(config, grid, train_key, config.collect.num_envs),
        held_out=_collect_walks(config, grid, held_out_key, config.collect.held_out_envs),
        grid=grid,
    )


def _collect_walks(config: AlloConfig, grid: Grid, key: Array, num_envs: int) -> Episodes:
    if num_envs == 0:
        return empty_episodes()
    walks = _walk(config.env, config.collect.steps_per_env, num_envs, grid, key)
    return from_walks(jax.device_get(walks))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _walk(env: Env, steps: int, num_envs: int, grid: Grid, key: Array) -> Walks:
    """Returns every transition; each column is (env, step), states in the smallest integer type.

    A step looks next states up in the grid's table; only a step that ends an episode draws first
    states.
    """
    small = smallest_type(len(grid.coords) - 1)
    reset_key, action_key = jax.random.split(key)
    first_states = partial(_first_states, env, num_envs, grid, reset_key)

    def step(envs: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], Walks]:
        state, elapsed = envs
        action = jax.random.randint(
            jax.random.fold_in(action_key, index), (num_envs,), 0, 4, jnp.int32
        )
        move = partial(dynamics.step, grid, max_episode_steps=env.max_episode_steps)
        next_state, terminated, truncated = jax.vmap(move)(state, elapsed, action)
        ended = terminated | truncated
        begun = jax.lax.cond(
            ended.any(),
            lambda: jnp.where(ended, first_states(index + 1), next_state),
            lambda: next_state,
        )
        return (begun, jnp.where(ended, 0, elapsed + 1)), Walks(
            state=state.astype(small),
            next_state=next_state.astype(small),
            terminated=terminated,
            truncated=truncated,
        )

    envs = (first_states(0), jnp.zeros(num_envs, jnp.int32))
    _, by_step = jax.lax.scan(step, envs, jnp.arange(steps))
    return jax.tree.map(lambda column: jnp.swapaxes(column, 0, 1), by_step)


def _first_states(
    env: Env, num_envs: int, grid: Grid, key: Array, index: Array | int
) -> Int[Array, " num_envs"]:
    keys = jax.random.split(jax.random.fold_in(key, index), num_envs)
    return jax.vmap(partial(dynamics.reset, grid=grid, uniform=env.start == "uniform"))(keys)


def check(config: AlloConfig, dataset: Dataset) -> None:
    """Raises DatasetMismatch if the tables of the dataset and of the config's map differ."""
    for name, table in dynamics.make_grid(config.env.map)._asdict().items():
        if not np.array_equal(getattr(dataset.grid, name), table):
            raise DatasetMismatch(
                f"the dataset was collected on another map than {config.env.map.name} "
                f"({name} differs); run `dvc repro` to collect it again"
            )


def input_constants(
    config: AlloConfig, dataset: Dataset, seed: int
) -> Float32[np.ndarray, "count 2"]:
    """Draws Fourier frequencies; other coordinates need none."""
    return dynamics.draw_frequencies(config.env, seed)


def inputs(
    config: AlloConfig, dataset: Dataset, constants: Float[np.ndarray, "count 2"]
) -> Float32[np.ndarray, "states inputs"]:
    return dynamics.observe(config.env, dataset.grid, constants)


def encoder_inputs(
    config: AlloConfig, constants: Float[np.ndarray, "count 2"]
) -> Callable[[Any], Float32[np.ndarray, "*batch inputs"]]:
    """Returns what takes states, or what Grid-v0 observes: the inputs themselves, unless they have
    Fourier features, whose frequencies are the learner's own. It raises ValueError for others.
    """
    inputs = dynamics.observe(config.env, dynamics.make_grid(config.env.map), constants)

    def read(asked: Any) -> Float32[np.ndarray, "*batch inputs"]:
        observations = np.asarray(asked)
        if observations.dtype.kind in "iu":
            if ((observations < 0) | (observations >= len(inputs))).any():
                raise ValueError(f"allo: states are whole numbers from 0 to {len(inputs) - 1}")
            return inputs[observations]
        if config.env.fourier or observations.shape[-1:] != (2,):
            raise ValueError(
                f"allo: observations have the shape {observations.shape}; give states, whole "
                "numbers, or without fourier the two coordinates that Grid-v0 observes"
            )
        return observations.astype(np.float32)

    return read


# Serving.


def input_sizes(config: AlloConfig, arrays: dict[str, np.ndarray]) -> tuple[tuple[int, int], int]:
    """Returns the shape of the constants and the number of inputs."""
    count = config.env.fourier.count if config.env.fourier else 0
    return (count, 2), 2 + 2 * count


def ask(dataset: Dataset, states: list[int]) -> Int32[np.ndarray, "questions 2"]:
    """Returns rows and columns of states."""
    return np.ascontiguousarray(np.asarray(dataset.coords)[states, ::-1], np.int32)


def served(config: AlloConfig, constants: Float[np.ndarray, "count 2"], encode: Encode) -> Served:
    """Returns what looks cells up in a table of all states; it raises ValueError for a wall."""
    layout = config.env.map
    states = np.full(layout.walls.shape, -1, np.int32)
    states[~layout.walls] = np.arange(count_states(layout))
    grid = dynamics.make_grid(layout)
    table = encode(dynamics.observe(config.env, grid, constants))

    def answer(cells: Int32[np.ndarray, "questions 2"]) -> dict[str, np.ndarray]:
        state = states[tuple(cells.T)]
        if (state < 0).any():
            first = int(state.argmin())
            row, column = cells[first].tolist()
            raise ValueError(
                f"allo: {INPUT}[{first}], row {row} and column {column}, is a wall "
                f"({layout.name}); give cells that can be walked on, counted from 0 at the top left"
            )
        return {"eigenvectors": table[state], "state": state}

    return (np.int32, (2,), 0, np.array(layout.walls.shape) - 1), answer
