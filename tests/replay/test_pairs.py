"""W is the exact probability of a pair: by hand, by a plain loop, and as the samplers draw it."""

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from benchmarks.reference.replay_loop import RowBuffer, sample_searching, sample_with_terminal_table
from quatrain.replay.episodes import pairs
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import (
    Episodes,
    ReplayError,
    sample,
    sample_numpy,
)
from tests.replay.trajectories import Trajectory, from_trajectories


def walk(state) -> Trajectory:
    off = np.zeros(len(state) - 1, bool)
    return Trajectory(np.array(state), np.zeros(len(off), int), off, off)


def random_episodes(lengths, states, seed=0) -> Episodes:
    rng = np.random.default_rng(seed)
    return from_trajectories([walk(rng.integers(states, size=length + 1)) for length in lengths])


def pair_matrix_by_a_plain_loop(episodes, states, discounts) -> np.ndarray:
    total = np.zeros((states, states))
    for slot in episodes.starts:
        horizon = episodes.horizon[slot]
        for discount in discounts:
            weights = [discount ** (lag - 1) for lag in range(1, horizon + 1)]
            for lag, weight in enumerate(weights, start=1):
                later = episodes.state[slot + lag]
                total[episodes.state[slot], later] += weight / sum(weights) / len(discounts)
    return total / len(episodes.starts)


def chi_square_p_value(state, later_state, matrix) -> float:
    counts = np.bincount(state * len(matrix) + later_state, minlength=matrix.size)
    possible = matrix.ravel() > 0
    assert counts[~possible].sum() == 0
    return chisquare(counts[possible], matrix.ravel()[possible] * len(state)).pvalue


@pytest.mark.parametrize("discounts", [(0.0,), (0.2,), (1.0,), (0.9, 0.999)])
def test_two_small_trajectories_give_the_matrix_computed_by_hand(discounts):
    matrix = pair_matrix(from_trajectories([walk([0, 1, 1]), walk([1, 0])]), 2, discounts)
    np.testing.assert_allclose(matrix, np.array([[0, 1], [1, 1]]) / 3, atol=1e-15)


def test_lags_of_one_trajectory_get_their_weights():
    matrix = pair_matrix(from_trajectories([walk([0, 1, 2, 3])]), 4, (0.5,))
    by_hand = np.zeros((4, 4))
    by_hand[0, 1:], by_hand[1, 2:], by_hand[2, 3] = [4 / 21, 2 / 21, 1 / 21], [2 / 9, 1 / 9], 1 / 3
    np.testing.assert_allclose(matrix, by_hand, atol=1e-15)


@pytest.mark.parametrize("discounts", [(0.0,), (0.2,), (0.999,), (1.0,), (0.0, 0.9, 0.99, 1.0)])
def test_blocks_and_their_matrix_product_equal_a_plain_loop(discounts):
    # Blocks have 64 slots here: trajectories of exactly one, one and a slot, and several blocks.
    episodes = random_episodes([1, 2, 63, 64, 150, 7, 1, 200, 128], states=5)
    expected = pair_matrix_by_a_plain_loop(episodes, 5, discounts)
    np.testing.assert_allclose(pair_matrix(episodes, 5, discounts), expected, atol=1e-14)


def test_working_in_small_pieces_changes_nothing(monkeypatch):
    episodes = random_episodes([150, 3, 200, 1, 330], states=5)
    whole = pair_matrix(episodes, 5, (0.9, 0.999))
    monkeypatch.setattr(pairs, "SLOTS_AT_ONCE", 1)
    monkeypatch.setattr(pairs, "TABLE_CELLS_AT_ONCE", 1)
    np.testing.assert_allclose(pair_matrix(episodes, 5, (0.9, 0.999)), whole, atol=1e-15)


def test_many_states_make_longer_blocks_and_the_same_matrix():
    episodes = random_episodes([260, 30, 1], states=900)
    expected = pair_matrix_by_a_plain_loop(episodes, 900, (0.99,))
    np.testing.assert_allclose(pair_matrix(episodes, 900, (0.99,)), expected, atol=1e-15)


def test_rows_add_up_to_the_share_of_starts():
    episodes = random_episodes([90, 5, 170], states=6)
    starts = np.bincount(episodes.state[episodes.starts], minlength=6) / 265
    matrix = pair_matrix(episodes, 6, (0.9, 0.99))
    np.testing.assert_allclose(matrix.sum(axis=1), starts, atol=1e-14)


def test_device_arrays_are_accepted():
    episodes = random_episodes([9, 4], states=3)
    on_device = jax.device_put(episodes)
    np.testing.assert_array_equal(
        pair_matrix(on_device, 3, (0.9,)), pair_matrix(episodes, 3, (0.9,))
    )


def test_an_empty_replay_and_a_foreign_state_are_refused():
    with pytest.raises(ReplayError, match="No pair to count: the replay holds no transition"):
        pair_matrix(from_trajectories([]), 4, (0.9,))
    with pytest.raises(
        ReplayError, match=r"holds state 7, but the matrix is for 7 states: .*another layout"
    ):
        pair_matrix(from_trajectories([walk([6, 7])]), 7, (0.9,))


@pytest.mark.parametrize("discounts", [(0.0,), (0.9,), (1.0,), (0.2, 0.999)])
def test_both_samplers_draw_the_pairs_as_often_as_the_matrix_says(discounts):
    episodes = random_episodes([1, 2, 7, 100, 40, 3], states=4)
    matrix = pair_matrix(episodes, 4, discounts)
    on_host = sample_numpy(np.random.default_rng(2), episodes, 200_000, discounts)
    on_device = jax.jit(sample, static_argnums=(2, 3))(
        jax.random.key(2), jax.device_put(episodes), 200_000, discounts
    )
    assert chi_square_p_value(on_host.state, on_host.later_state, matrix) > 1e-3
    state, later_state = np.asarray(on_device.state), np.asarray(on_device.later_state)
    assert chi_square_p_value(state, later_state, matrix) > 1e-3


@pytest.mark.parametrize("reference", [sample_searching, sample_with_terminal_table])
def test_the_slow_references_draw_from_the_same_law(reference):
    rng = np.random.default_rng(4)
    rows, buffer = [], RowBuffer(max_episodes=3, episode_length=2 * 110)
    for _ in range(3):  # more flags in a row than the reference's table has columns at first
        row = [walk(rng.integers(4, size=2)) for _ in range(110)]
        buffer.add_episode(
            np.concatenate([trajectory.state for trajectory in row]), np.tile([0, 1], 110)
        )
        rows += row
    matrix = pair_matrix(from_trajectories(rows), 4, (0.8,))
    state, later_state = reference(rng, buffer, 20_000, 0.8)
    assert chi_square_p_value(state, later_state, matrix) > 1e-3


def test_the_slow_references_follow_long_rows():
    rng = np.random.default_rng(6)
    buffer, rows = RowBuffer(max_episodes=2, episode_length=41), []
    for _ in range(2):
        row = [walk(rng.integers(3, size=30)), walk(rng.integers(3, size=11))]
        buffer.add_episode(
            np.concatenate([trajectory.state for trajectory in row]),
            np.isin(np.arange(41), [29, 40]),
        )
        rows += row
    matrix = pair_matrix(from_trajectories(rows), 3, (0.8,))
    for reference in (sample_searching, sample_with_terminal_table):
        assert chi_square_p_value(*reference(rng, buffer, 20_000, 0.8), matrix) > 1e-3
