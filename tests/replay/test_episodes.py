"""Walks become flat trajectories; batches of pairs and of states are independent draws."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from quatrain.replay.episodes.trajectories import Episodes, Walks, from_walks, sample
from tests.quick_jit import quick_jit
from tests.replay.trajectories import from_trajectories


def numbered(lengths) -> Episodes:
    """Trajectories of the given numbers of transitions; every state is the number of its slot."""
    first = np.cumsum([0, *(length + 1 for length in lengths)])
    return from_trajectories([np.arange(begin, end) for begin, end in pairwise(first)])


def random_walks(end_probability) -> Walks:
    """Draws walks as a collection scan yields them: next_state is the state before the reset."""
    num_envs, steps, states = 7, 31, 5
    rng = np.random.default_rng(0)
    state = np.zeros((num_envs, steps), np.int32)
    next_state = rng.integers(states, size=(num_envs, steps), dtype=np.int32)
    terminated = rng.random((num_envs, steps)) < end_probability
    truncated = rng.random((num_envs, steps)) < end_probability
    state[:, 0] = rng.integers(states, size=num_envs)
    for step in range(1, steps):
        reset = terminated[:, step - 1] | truncated[:, step - 1]
        fresh = rng.integers(states, size=num_envs)
        state[:, step] = np.where(reset, fresh, next_state[:, step - 1])
    return Walks(state, next_state, terminated, truncated)


def flattened_by_a_plain_loop(state, next_state, terminated, truncated) -> list[list]:
    """Returns (state, terminated, horizon) of each slot."""
    slots, open_slots = [], []
    for env in range(state.shape[0]):
        for step in range(state.shape[1]):
            is_last, over = step == state.shape[1] - 1, bool(terminated[env, step])
            open_slots.append([state[env, step], over])
            if over or truncated[env, step] or is_last:
                open_slots.append([next_state[env, step], False])
                last = len(open_slots) - 1
                slots += [[*slot, last - i] for i, slot in enumerate(open_slots)]
                open_slots = []
    return slots


sample_jitted = quick_jit(sample, static_argnums=(2, 3, 4))


def draw_pairs(episodes, batch_size, discounts, constraint_batches=2):
    """Returns one batch as NumPy arrays."""
    on_device = jax.tree.map(jnp.asarray, episodes)
    batch = sample_jitted(jax.random.key(5), on_device, batch_size, discounts, constraint_batches)
    return jax.tree.map(np.asarray, batch)


@pytest.mark.parametrize("end_probability", [0.0, 0.1, 0.5])
def test_flattening_equals_a_plain_loop_over_environments_and_steps(end_probability):
    walks = random_walks(end_probability)
    episodes = from_walks(jax.tree.map(jnp.asarray, walks))
    slots = flattened_by_a_plain_loop(*walks)
    for column, values in zip(episodes[:3], zip(*slots, strict=True), strict=True):
        assert column.tolist() == list(values)
    assert episodes.starts.tolist() == [i for i, slot in enumerate(slots) if slot[2] > 0]
    dtypes = [column.dtype for column in episodes]
    assert dtypes == [np.int32, np.bool_, np.uint8, np.int32]


def test_pairs_and_constraint_states_are_independent_draws():
    batch = draw_pairs(numbered([2, 5]), 40_000, (0.9,))
    first, second = batch.constraint_states
    for left, right in ((batch.state, first), (batch.state, second), (first, second)):
        joint = np.bincount(left * 9 + right, minlength=81).reshape(9, 9)
        starts = [0, 1, 3, 4, 5, 6, 7]
        assert joint[np.ix_(starts, starts)].sum() == 40_000
        assert chisquare(joint[np.ix_(starts, starts)].ravel()).pvalue > 1e-3


def test_the_smallest_types_hold_the_longest_walk_and_draw_the_pairs_of_wide_types():
    """Walks of 300 transitions over 300 states do not fit into 8 bits."""
    episodes = numbered([300, 2])
    off, states = np.zeros((1, 300), bool), np.arange(301, dtype=np.uint16)[None]
    small = from_walks(Walks(states[:, :-1], states[:, 1:], off, off))
    assert (small.state.dtype, small.horizon.dtype) == (np.uint16, np.uint16)
    assert small.horizon.tolist() == list(range(300, -1, -1))
    assert from_walks(random_walks(0.1)).horizon.dtype == np.uint8
    wide = episodes._replace(
        state=episodes.state.astype(np.int32), horizon=episodes.horizon.astype(np.int32)
    )
    narrow = episodes._replace(state=episodes.state.astype(np.uint16))
    for batch, wide_batch in zip(
        draw_pairs(narrow, 1000, (0.2, 0.999)), draw_pairs(wide, 1000, (0.2, 0.999)), strict=True
    ):
        np.testing.assert_array_equal(batch, wide_batch)
        assert batch.dtype == np.int32
