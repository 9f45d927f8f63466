"""Sizes of the named worlds; what spawns, and where agents start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quatrain.envs.treasurehunt.world import make_world, spawn_items
from tests.envs.treasurehunt.played import TREASUREHUNT, changed, entities
from tests.quick_jit import quick_jit


def test_entities_spawn_by_probability_and_weight():
    kinds = entities(gem=(10.0, 2.0), dust=(0.0, 0.0), bone=(-10.0, 5.0), food=(5.0, 1.0))
    rules = changed(TREASUREHUNT, entities=kinds, spawn_probability=0.1)
    keys = jax.random.split(jax.random.key(5), 2000)
    spawn = quick_jit(jax.vmap(lambda key: spawn_items(rules, key, jnp.int32(1), jnp.int32(2))))
    spawned = np.asarray(spawn(keys))
    counts = np.bincount(spawned.reshape(-1), minlength=5)[1:]
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], counts.sum() * np.array([2, 5, 1]) / 8).pvalue > 1e-4
    assert counts.sum() == pytest.approx(12800, abs=5 * np.sqrt(12800 * 0.9))
    assert (spawned > 0).sum((1, 2)).var() == pytest.approx(64 * 0.1 * 0.9, rel=0.15)


def test_what_spawns_differs_between_turns_episodes_and_worlds():
    rules = changed(TREASUREHUNT, spawn_probability=0.5)
    spawn = quick_jit(
        lambda seed, episode, turn: spawn_items(rules, jax.random.key(seed), episode, turn)
    )
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len({np.asarray(spawn(*place)).tobytes() for place in places}) == 4


def test_agents_start_uniformly_on_distinct_cells():
    world = make_world(TREASUREHUNT)
    assert make_world(changed(TREASUREHUNT, agents=5)) is world  # equal rules compile once
    reset = quick_jit(jax.vmap(world.reset, (0, None)))
    keys = jax.random.split(jax.random.key(6), 6400)
    positions, again, other = (
        np.asarray(reset(keys, jnp.int32(episode)).positions) for episode in (0, 0, 1)
    )
    np.testing.assert_array_equal(positions, again)
    assert not np.array_equal(positions, other)
    cells = (positions[..., 0] - 1) * 8 + positions[..., 1] - 1
    assert all(len(set(row)) == 5 for row in cells.tolist())
    for agent in (0, 4):
        assert stats.chisquare(np.bincount(cells[:, agent], minlength=64)).pvalue > 1e-4
    # Pairs too: none of the 64·63 is preferred.
    pairs = np.bincount(cells[:, 0] * 64 + cells[:, 1], minlength=64**2).reshape(64, 64)
    assert stats.chisquare(pairs[~np.eye(64, dtype=bool)]).pvalue > 1e-4
