"""The collected walks are those of the plainest program: every step draws, all columns are wide."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.grid import dynamics
from quatrain.models.allo.collect import collect
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.trajectories import Episodes, Walks, from_walks
from tests.conftest import small

allo = partial(small, "allo")


def collect_plainly(config: AlloConfig, seed: int) -> Episodes:
    """Steps all environments one by one in Python; each step draws first states for all."""
    grid = dynamics.make_grid(config.env.map)
    train_key, _ = jax.random.split(jax.random.key(seed))
    reset_key, action_key = jax.random.split(train_key)
    num_envs = config.collect.num_envs
    draw_first = jax.jit(
        jax.vmap(partial(dynamics.reset, grid=grid, uniform=config.env.start == "uniform"))
    )

    def first_states(index: int) -> np.ndarray:
        keys = jax.random.split(jax.random.fold_in(reset_key, index), num_envs)
        return np.array(draw_first(keys))

    state, elapsed, columns = first_states(0), np.zeros(num_envs, int), []
    for index in range(config.collect.steps_per_env):
        key = jax.random.fold_in(action_key, index)
        action = np.asarray(jax.random.randint(key, (num_envs,), 0, 4, jnp.int32))
        next_state = grid.next_state[state, action]
        terminated = next_state == grid.goal
        truncated = ~terminated & (elapsed + 1 >= config.env.max_episode_steps)
        columns.append((state, next_state, terminated, truncated))
        ended = terminated | truncated
        state = np.where(ended, first_states(index + 1), next_state)
        elapsed = np.where(ended, 0, elapsed + 1)
    return from_walks(Walks(*(np.stack(column, 1) for column in zip(*columns, strict=True))))


@pytest.mark.parametrize(
    "env",
    [
        {"layout": "room4", "max_episode_steps": 7},
        {"layout": "spiral", "max_episode_steps": 300},
        {"layout": "spiral", "max_episode_steps": 9, "start": "layout"},
    ],
    ids=["cut", "with a goal", "from the start of the map"],
)
def test_compact_walks_are_bit_for_bit_those_of_a_plain_loop(env: dict):
    config = allo(env=env, collect={"num_envs": 13, "steps_per_env": 40})
    walked, plain = collect(config, 3).train, collect_plainly(config, 3)
    for name, column in walked._asdict().items():
        np.testing.assert_array_equal(column, getattr(plain, name), err_msg=name)
    assert walked.state.dtype == np.uint8
    assert walked.starts.dtype == plain.starts.dtype
