"""config, seed -> walks of a uniform random policy in the grid world: for training and held out."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from quatrain.envs.grid import dynamics
from quatrain.envs.grid.config import Env
from quatrain.envs.grid.dynamics import Grid, Transition
from quatrain.errors import DatasetMismatch
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.hosted.dataset import HostedDataset, standardise
from quatrain.replay.episodes.trajectories import (
    Episodes,
    Walks,
    empty_episodes,
    from_walks,
    smallest_type,
)


class Dataset(NamedTuple):
    """Holds walks for training, independent held-out walks (may be empty), and their grid world."""

    train: Episodes
    held_out: Episodes
    grid: Grid


# Of a grid world, or of a user's environment.
AnyDataset = Dataset | HostedDataset


class EnvState(NamedTuple):
    """Holds all environments between two steps; `elapsed` counts the steps of each episode."""

    state: Array
    elapsed: Array


def dataset_type(config: AlloConfig) -> type[Dataset]:
    return Dataset


def collect(config: AlloConfig, seed: int) -> Dataset:
    """Collects `num_envs` walks of `steps_per_env` transitions, and independent held-out walks."""
    grid = dynamics.make_grid(config.env.map)
    train_key, held_out_key = jax.random.split(jax.random.key(seed))
    return Dataset(
        train=_collect_walks(config, grid, train_key, config.collect.num_envs),
        held_out=_collect_walks(config, grid, held_out_key, config.collect.held_out_envs),
        grid=grid,
    )


def _collect_walks(
    config: AlloConfig,
    grid: Grid,
    key: Array,
    num_envs: int,
) -> Episodes:
    if num_envs == 0:
        return empty_episodes(slots=0)
    return from_walks(
        jax.device_get(_walk(config.env, config.collect.steps_per_env, num_envs, grid, key))
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _walk(
    env: Env,
    steps: int,
    num_envs: int,
    grid: Grid,
    key: Array,
) -> Walks:
    """Returns every transition; each column is (env, step), states in the smallest integer type.

    A step looks next states up in the grid's table; only a step that ends an episode draws first
    states.
    """
    small = smallest_type(len(grid.coords) - 1)
    reset_key, action_key = jax.random.split(key)
    first_states = partial(_first_states, env, num_envs, grid, reset_key)

    def step(envs: EnvState, index: Array) -> tuple[EnvState, Walks]:
        action = jax.random.randint(
            jax.random.fold_in(action_key, index), (num_envs,), 0, 4, jnp.int32
        )
        transition = jax.vmap(
            partial(dynamics.step, grid, max_episode_steps=env.max_episode_steps)
        )(envs.state, envs.elapsed, action)
        return _next_envs(envs, transition, partial(first_states, index + 1)), Walks(
            state=envs.state.astype(small),
            action=action.astype(jnp.int8),
            next_state=transition.next_state.astype(small),
            terminated=transition.terminated,
            truncated=transition.truncated,
        )

    envs = EnvState(first_states(0), jnp.zeros(num_envs, jnp.int32))
    _, by_step = jax.lax.scan(step, envs, jnp.arange(steps))
    return jax.tree.map(lambda column: jnp.swapaxes(column, 0, 1), by_step)


def _first_states(
    env: Env,
    num_envs: int,
    grid: Grid,
    key: Array,
    index: Array | int,
) -> Int[Array, " num_envs"]:
    keys = jax.random.split(jax.random.fold_in(key, index), num_envs)
    return jax.vmap(partial(dynamics.reset, grid=grid, uniform=env.start == "uniform"))(keys)


def _next_envs(
    envs: EnvState,
    transition: Transition,
    first_states: Callable[[], Array],
) -> EnvState:
    """Returns the environments after a step; those whose episode ended start another one."""
    ended = transition.terminated | transition.truncated
    return EnvState(
        state=jax.lax.cond(
            ended.any(),
            lambda: jnp.where(ended, first_states(), transition.next_state),
            lambda: transition.next_state,
        ),
        elapsed=jnp.where(ended, 0, envs.elapsed + 1),
    )


def check(config: AlloConfig, dataset: Dataset) -> None:
    """Raises unless the dataset was collected on the config's map.

    Raises:
        DatasetMismatch: the tables of the dataset and of the config's map differ.
    """
    for name, table in dynamics.make_grid(config.env.map)._asdict().items():
        if not np.array_equal(getattr(dataset.grid, name), table):
            raise DatasetMismatch(
                f"the dataset was collected on another map than {config.env.map.name} "
                f"({name} differs); run `dvc repro` to collect it again"
            )


def draw_frequencies(env: Env, seed: int) -> Float[np.ndarray, "count 2"]:
    """Draws the Fourier frequencies; without `fourier` there are none."""
    if env.fourier is None:
        return np.zeros((0, 2), np.float32)
    return dynamics.fourier_frequencies(env.fourier.scale, env.fourier.count, seed)


def encoder_inputs(
    env: Env,
    grid: Grid,
    frequencies: Float[np.ndarray, "count 2"],
) -> Float[np.ndarray, "states inputs"]:
    if env.fourier is None:
        return dynamics.observe(grid, env.observation)
    return dynamics.fourier_inputs(grid, frequencies)


def dataset_inputs(
    config: AlloConfig, dataset: AnyDataset, constants: Float[np.ndarray, "row column"]
) -> Float[np.ndarray, "states inputs"]:
    """Returns the encoder's input for each state of the dataset; see `input_constants`."""
    if isinstance(dataset, HostedDataset):
        return standardise(dataset.table.observations, *constants)
    return encoder_inputs(config.env, dataset.grid, constants)


def count_states(dataset: AnyDataset) -> int:
    if isinstance(dataset, HostedDataset):
        return len(dataset.table.observations)
    return len(dataset.grid.coords)


def input_constants(
    config: AlloConfig, dataset: AnyDataset, seed: int
) -> Float[np.ndarray, "row column"]:
    """Returns what turns states into inputs: drawn Fourier frequencies, or in a user's environment
    mean and deviation of observations.
    """
    if isinstance(dataset, HostedDataset):
        return np.stack([dataset.table.mean, dataset.table.std])
    return draw_frequencies(config.env, seed)
