"""W is the exact probability of a pair: by a plain loop, and as the sampler draws it."""

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from benchmarks.reference.replay_loop import (
    RowBuffer,
    sample_searching,
    sample_with_snippet,
    sample_with_terminal_table,
)
from quatrain.errors import DataError
from quatrain.replay.episodes import pairs
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes, sample
from tests.quick_jit import quick_jit
from tests.replay.trajectories import from_trajectories


def random_episodes(lengths, states) -> Episodes:
    rng = np.random.default_rng(0)
    return from_trajectories([rng.integers(states, size=length + 1) for length in lengths])


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
    """Cells that expect fewer than 5 pairs count as one."""
    counts = np.bincount(np.asarray(state) * len(matrix) + later_state, minlength=matrix.size)
    expected = matrix.ravel() * len(state)
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    used = expected > 1e-9
    return chisquare(observed[used], expected[used]).pvalue


@pytest.mark.parametrize(
    "discounts", [(0.0,), (0.999,), (0.0, 0.9, 0.99, 1.0), (0.5, 0.99, 0.5, 0.5, 0.99)]
)
def test_blocks_and_their_matrix_product_equal_a_plain_loop(monkeypatch, discounts):
    # Blocks have 64 slots here: trajectories of exactly one, one and a slot, and several blocks.
    episodes = random_episodes([1, 2, 63, 64, 150, 7, 1, 200, 128], states=5)
    expected = pair_matrix_by_a_plain_loop(episodes, 5, discounts)
    np.testing.assert_allclose(pair_matrix(episodes, 5, discounts), expected, atol=1e-14)
    np.testing.assert_array_equal(
        pair_matrix(jax.device_put(episodes), 5, discounts), pair_matrix(episodes, 5, discounts)
    )
    monkeypatch.setattr(pairs, "SLOTS_AT_ONCE", 1)
    monkeypatch.setattr(pairs, "TABLE_CELLS_AT_ONCE", 1)
    np.testing.assert_allclose(pair_matrix(episodes, 5, discounts), expected, atol=1e-14)


def test_an_empty_replay_and_a_foreign_state_are_refused():
    with pytest.raises(DataError, match="No pair to count: the replay holds no transition"):
        pair_matrix(from_trajectories([]), 4, (0.9,))
    with pytest.raises(
        DataError, match=r"holds state 7, but the matrix is for 7 states: .*another layout"
    ):
        pair_matrix(from_trajectories([[6, 7]]), 7, (0.9,))


@pytest.mark.parametrize("discounts", [(0.0,), (0.999,), (0.5, 1.0)])
def test_the_sampler_draws_the_pairs_of_slots_as_often_as_the_matrix_says(discounts):
    lengths, slots = [1, 2, 7, 40, 3, 1], 60
    walks = np.split(np.arange(slots), np.cumsum(lengths) + np.arange(1, 7))[:-1]
    episodes = from_trajectories(walks)
    matrix = pair_matrix(episodes, slots, discounts)
    drawn = quick_jit(sample, static_argnums=(2, 3))(
        jax.random.key(2), jax.device_put(episodes), 200_000, discounts
    )
    assert chi_square_p_value(drawn.state, drawn.later_state, matrix) > 1e-3


def test_the_slow_references_draw_from_the_same_law():
    """A row of 110 trajectories has more flags than the reference's table has columns."""
    rng, walks = np.random.default_rng(4), []
    buffer = RowBuffer(max_episodes=3, episode_length=220)
    for lengths in ([1] * 110, [29, 189], [219]):
        states = rng.integers(4, size=220)
        ends = np.cumsum(np.add(lengths, 1))
        buffer.add_episode(states, np.isin(np.arange(1, 221), ends))
        walks += np.split(states, ends[:-1])
    episodes = from_trajectories(walks)
    matrix = pair_matrix(episodes, 4, (0.8,))
    for reference in (sample_searching, sample_with_snippet, sample_with_terminal_table):
        assert chi_square_p_value(*reference(rng, buffer, 20_000, 0.8), matrix) > 1e-3
