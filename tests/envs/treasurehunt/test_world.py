"""What an agent sees and what a move pays, by example; what spawns, and where agents start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quatrain.envs.treasurehunt.rules import (
    TREASUREHUNT,
    TREASUREHUNT_LARGE,
    Entity,
    channels,
    frame_size,
)
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from tests.envs.treasurehunt.played import RIGHT, UP, placed
from tests.quick_jit import quick_jit


def image(*rows):
    return [[int(cell) for cell in row] for row in rows]


def views_and_acts(rules, state, actions):
    """Returns what each agent sees before it acts, and the results of the actions."""
    world = make_world(rules)

    @quick_jit
    def play(state):
        results = []
        for agent, action in enumerate(actions):
            frame = world.observe(state, jnp.int32(agent))
            state, reward, event = world.act(state, jnp.int32(agent), jnp.int8(action))
            results.append((frame, reward, event))
        return state, results

    state, results = play(state)
    frames, rewards, events = zip(*results, strict=True)
    assert frames[0].dtype == jnp.int8
    views = [dict(zip(channels(rules), frame.reshape(-1, 5, 5), strict=True)) for frame in frames]
    return state, views, list(map(float, rewards)), list(map(int, events))


def test_sizes_of_the_named_worlds():
    assert (frame_size(TREASUREHUNT), frame_size(TREASUREHUNT_LARGE)) == (125, 150)
    assert channels(TREASUREHUNT) == ("empty", "wall", "ground", "gem", "agent")
    assert channels(TREASUREHUNT_LARGE) == ("empty", "wall", "gem", "bone", "food", "agent")


def test_in_a_corner_of_sand_walls_inside_count_twice_and_the_outside_once():
    rules = TREASUREHUNT._replace(agents=3, agent_value=-0.5)
    state = placed(rules, [(1, 1), (1, 3), (2, 2)], [((1, 2), 1), ((3, 2), 1)])
    state, views, rewards, events = views_and_acts(rules, state, [RIGHT, RIGHT, UP])
    first, _, last = views
    assert first["wall"].tolist() == image("11111", "12222", "12000", "12000", "12000")
    assert first["ground"].tolist() == image("00000", "00000", "00111", "00111", "00111")
    assert np.argwhere(first["gem"]).tolist() == [[2, 3], [4, 3]]
    assert np.argwhere(first["agent"]).tolist() == [[2, 2], [2, 4], [3, 3]]
    assert not first["empty"].any()
    # The first takes the gem; the last sees it there and walks into it.
    assert np.argwhere(last["agent"]).tolist() == [[1, 2], [1, 4], [2, 2]]
    assert np.argwhere(last["gem"]).tolist() == [[3, 2]]
    assert state.positions.tolist() == [[1, 2], [1, 4], [2, 2]]
    assert (rewards, events) == ([10, 0, -0.5], [1, 0, -2])


def test_on_plain_ground_a_wall_counts_once():
    rules = TREASUREHUNT_LARGE
    state = placed(rules, [(1, 1), (3, 3)], [((1, 2), 1), ((2, 2), 2), ((3, 1), 3)])
    state, (views, _), rewards, events = views_and_acts(rules, state, [UP, RIGHT])
    assert views["wall"].tolist() == image("11111", "11111", "11000", "11000", "11000")
    for name, cell in (("gem", [2, 3]), ("bone", [3, 3]), ("food", [4, 2])):
        assert np.argwhere(views[name]).tolist() == [cell]
    assert (rewards, events) == ([-1, 0], [-1, 0])


def test_entities_spawn_by_probability_and_weight():
    kinds = (
        Entity("gem", 10.0, 2.0),
        Entity("dust", 0.0, 0.0),
        Entity("bone", -10.0, 5.0),
        Entity("food", 5.0, 1.0),
    )
    rules = TREASUREHUNT._replace(entities=kinds, spawn_probability=0.1)
    keys = jax.random.split(jax.random.key(5), 2000)
    spawn = quick_jit(jax.vmap(lambda key: spawn_items(rules, key, jnp.int32(1), jnp.int32(2))))
    spawned = np.asarray(spawn(keys))
    counts = np.bincount(spawned.reshape(-1), minlength=5)[1:]
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], counts.sum() * np.array([2, 5, 1]) / 8).pvalue > 1e-4
    assert counts.sum() == pytest.approx(12800, abs=5 * np.sqrt(12800 * 0.9))
    assert (spawned > 0).sum((1, 2)).var() == pytest.approx(64 * 0.1 * 0.9, rel=0.15)


def test_what_spawns_differs_between_turns_episodes_and_worlds():
    rules = TREASUREHUNT._replace(spawn_probability=0.5)
    spawn = quick_jit(
        lambda seed, episode, turn: spawn_items(rules, jax.random.key(seed), episode, turn)
    )
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len({np.asarray(spawn(*place)).tobytes() for place in places}) == 4


def test_agents_start_uniformly_on_distinct_cells():
    world = make_world(TREASUREHUNT)
    assert make_world(TREASUREHUNT._replace(agents=5)) is world  # equal rules compile once
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
