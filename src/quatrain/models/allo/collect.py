"""config, seed -> walks of a uniform random policy through the grid world, for training and held out."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from quatrain.envs.grid import dynamics
from quatrain.envs.grid.config import Env
from quatrain.envs.grid.dynamics import Grid
from quatrain.errors import DatasetMismatch
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.trajectories import Episodes, from_trajectories, from_walks


class Dataset(NamedTuple):
    """Walks to learn from, independent walks to check with (none: empty arrays), and the world that they share."""

    train: Episodes
    held_out: Episodes
    grid: Grid


class Walker(NamedTuple):
    """One walker between two steps."""

    state: Array
    elapsed: Array


def collect(config: AlloConfig, seed: int) -> Dataset:
    """`num_envs` walks of `steps_per_env` transitions, and held-out walks from independent keys."""
    grid = dynamics.make_grid(config.env.map)
    train_key, held_out_key = jax.random.split(jax.random.key(seed))
    return Dataset(
        train=_walks(config, grid, train_key, config.collect.num_envs),
        held_out=_walks(config, grid, held_out_key, config.collect.held_out_envs),
        grid=grid,
    )


def _walks(config: AlloConfig, grid: Grid, key: Array, walkers: int) -> Episodes:
    if walkers == 0:
        return from_trajectories([])
    return from_walks(
        *jax.device_get(_walk(config.env, config.collect.steps_per_env, walkers, grid, key))
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _walk(env: Env, steps: int, walkers: int, grid: Grid, key: Array) -> tuple[Array, ...]:
    """(state, action, next state, terminated, truncated) of every transition, each (walkers, steps)."""
    reset_key, action_key = jax.random.split(key)
    reset = jax.vmap(lambda one: dynamics.reset(one, grid, uniform=env.start == "uniform"))

    def step(walker: Walker, index: Array) -> tuple[Walker, tuple[Array, ...]]:
        action = jax.random.randint(
            jax.random.fold_in(action_key, index), (walkers,), 0, 4, jnp.int32
        )
        moved = jax.vmap(lambda s, e, a: dynamics.step(grid, s, e, a, env.max_episode_steps))(
            walker.state, walker.elapsed, action
        )
        ended = moved.terminated | moved.truncated
        fresh = reset(jax.random.split(jax.random.fold_in(reset_key, index + 1), walkers))
        following = Walker(
            jnp.where(ended, fresh, moved.next_state), jnp.where(ended, 0, walker.elapsed + 1)
        )
        return following, (
            walker.state,
            action.astype(jnp.int8),
            moved.next_state,
            moved.terminated,
            moved.truncated,
        )

    first = Walker(
        reset(jax.random.split(jax.random.fold_in(reset_key, 0), walkers)),
        jnp.zeros(walkers, jnp.int32),
    )
    _, transitions = jax.lax.scan(step, first, jnp.arange(steps))
    return tuple(jnp.swapaxes(column, 0, 1) for column in transitions)


def check(config: AlloConfig, dataset: Dataset) -> None:
    """Refuse a dataset that was collected in another world.

    Raises:
        DatasetMismatch: the tables of the dataset and of the config's map differ.
    """
    expected = dynamics.make_grid(config.env.map)
    for name, wanted in expected._asdict().items():
        if not np.array_equal(getattr(dataset.grid, name), wanted):
            raise DatasetMismatch(
                f"the dataset was collected on another map than {config.env.map.name} ({name} differs); "
                "run `dvc repro` to collect it again"
            )


def inputs_of(
    env: Env, grid: Grid, seed: int = 0, frequencies: np.ndarray | None = None
) -> tuple[Float[np.ndarray, "count 2"], Float[np.ndarray, "states inputs"]]:
    """The Fourier frequencies (those given, else drawn from the seed) and what the encoder sees of each state."""
    if env.fourier is None:
        return np.zeros((0, 2), np.float32), dynamics.observe(grid, env.observation)
    if frequencies is None:
        frequencies = dynamics.fourier_frequencies(env.fourier.scale, env.fourier.count, seed)
    return frequencies, dynamics.fourier_inputs(grid, frequencies)
