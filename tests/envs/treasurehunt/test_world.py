"""The rules by example: what agents see, who comes first, what a move pays, what spawns."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quatrain.envs.treasurehunt.layouts import open_map, parse_map
from quatrain.envs.treasurehunt.rules import (
    TREASUREHUNT,
    TREASUREHUNT_LARGE,
    Entity,
    channels,
    frame_size,
)
from quatrain.envs.treasurehunt.world import State, make_world, spawn_items
from tests.envs.treasurehunt.played import DOWN, LEFT, RIGHT, UP, placed
from tests.quick_jit import quick_jit

BARREN = TREASUREHUNT._replace(spawn_probability=0.0, agent_value=-0.5, wall_value=-3.0)
BARREN_LARGE = TREASUREHUNT_LARGE._replace(spawn_probability=0.0)
FAR = [(8, 4), (8, 6), (8, 8)]
"""Where agents 2 to 4 stand out of the way."""
WAIT = [DOWN] * 3
"""What they do: they walk into the wall below."""


class Outcome(NamedTuple):
    """Holds the state after a turn, and rewards, events and observations of the agents."""

    state: State
    rewards: list[float]
    events: list[int]
    views: list[dict[str, np.ndarray]]


@partial(quick_jit, static_argnums=0)
def _turn(rules, state, actions):
    world, results = make_world(rules), []
    state = world.begin_turn(state)
    for agent, action in enumerate(actions):
        frame = world.observe(state, jnp.int32(agent))
        state, reward, event = world.act(state, jnp.int32(agent), action)
        results.append((frame, reward, event))
    return state, results


def turn_of(rules, state, actions):
    """Lets the agents act in their order."""
    state, results = _turn(rules, state, [jnp.int8(action) for action in actions])
    side = 2 * rules.vision_radius + 1
    assert results[0][0].dtype == jnp.int8
    views = [
        dict(zip(channels(rules), np.asarray(frame).reshape(-1, side, side), strict=True))
        for frame, _, _ in results
    ]
    _, rewards, events = zip(*results, strict=True)
    return Outcome(state, list(map(float, rewards)), list(map(int, events)), views)


def image(rows):
    return [[int(cell) for cell in row] for row in rows]


# Observations and moves.


def test_sizes_of_the_named_worlds():
    assert (frame_size(TREASUREHUNT), frame_size(TREASUREHUNT_LARGE)) == (125, 150)
    assert channels(TREASUREHUNT) == ("empty", "wall", "ground", "gem", "agent")
    assert channels(TREASUREHUNT_LARGE) == ("empty", "wall", "gem", "bone", "food", "agent")


def test_in_a_corner_walls_inside_count_twice_and_the_outside_once():
    state = placed(BARREN, [(1, 1), (1, 3), *FAR], [((3, 2), 1)])
    after = turn_of(BARREN, state, [UP, DOWN, *WAIT])
    views = after.views[0]
    assert views["wall"].tolist() == image(["11111", "12222", "12000", "12000", "12000"])
    assert views["ground"].tolist() == image(["00000", "00000", "00111", "00111", "00111"])
    assert np.argwhere(views["gem"]).tolist() == [[4, 3]]
    assert np.argwhere(views["agent"]).tolist() == [[2, 2], [2, 4]]
    assert not views["empty"].any()
    # A wall costs and blocks.
    assert (after.rewards, after.events) == ([-3, 0, -3, -3, -3], [-1, 0, -1, -1, -1])
    assert after.state.positions[:2].tolist() == [[1, 1], [2, 3]]


def test_on_plain_ground_a_wall_counts_once_inside_and_outside_and_a_bone_harms_and_vanishes():
    items = [((1, 2), 1), ((2, 2), 2), ((3, 1), 3), ((3, 4), 2)]
    state = placed(BARREN_LARGE, [(1, 1), (3, 3)], items)
    after = turn_of(BARREN_LARGE, state, [RIGHT, RIGHT])
    views = after.views[0]
    assert views["wall"].tolist() == image(["11111", "11111", "11000", "11000", "11000"])
    assert np.argwhere(views["gem"]).tolist() == [[2, 3]]
    assert np.argwhere(views["bone"]).tolist() == [[3, 3]]
    assert np.argwhere(views["food"]).tolist() == [[4, 2]]
    assert np.argwhere(views["agent"]).tolist() == [[2, 2], [4, 4]]
    assert (after.rewards, after.events) == ([10, -10], [1, 2])
    assert np.argwhere(after.state.items).tolist() == [[2, 2], [3, 1]]


def test_an_agent_may_see_the_whole_map_and_beyond():
    rules = BARREN._replace(map=open_map(4, 6), agents=2, vision_radius=5)
    views = turn_of(rules, placed(rules, [(2, 4), (1, 1)], [((1, 4), 1)]), [UP, UP]).views[0]
    assert views["ground"].sum() == 8
    assert views["wall"].sum() == 121 + (24 - 8) - 8
    assert np.argwhere(views["agent"]).tolist() == [[4, 2], [5, 5]]
    assert np.argwhere(views["gem"]).tolist() == [[4, 5]]


@pytest.mark.parametrize(
    ("positions", "moves", "ends", "rewards", "events"),
    [
        # The first takes the gem on (5, 5); the second sees it there and walks into it.
        ([(5, 4), (5, 6)], [RIGHT, LEFT], [[5, 5], [5, 6]], [10, -0.5], [1, -2]),
        # A cell that is left is free for those who act later.
        ([(6, 5), (6, 4)], [RIGHT, RIGHT], [[6, 6], [6, 5]], [0, 0], [0, 0]),
        ([(6, 4), (6, 5)], [RIGHT, RIGHT], [[6, 4], [6, 6]], [-0.5, 0], [-2, 0]),
        # Neighbours cannot swap.
        ([(6, 4), (6, 5)], [RIGHT, LEFT], [[6, 4], [6, 5]], [-0.5, -0.5], [-2, -2]),
    ],
)
def test_agents_act_one_after_the_other(positions, moves, ends, rewards, events):
    state = placed(BARREN, [*positions, *FAR], [((5, 5), 1)])
    after = turn_of(BARREN, state, [*moves, *WAIT])
    assert after.state.positions[:2].tolist() == ends
    assert (after.rewards[:2], after.events[:2]) == (rewards, events)
    if after.events[0] == 1:
        assert not after.views[1]["gem"].any()
        assert after.views[1]["agent"][2, 1] == 1


# Growth.


def test_everything_free_spawns_at_probability_one():
    rules = TREASUREHUNT._replace(spawn_probability=1.0)
    state = placed(rules, [(1, 1), (5, 5), (8, 1), (8, 3), (8, 8)])
    first = turn_of(rules, state, [UP, RIGHT, LEFT, UP, RIGHT])
    assert first.rewards == [-1, 10, -1, 10, -1]
    assert jnp.sum(first.state.items > 0) == 59 - 2
    second = turn_of(rules, first.state, [RIGHT, LEFT, UP, UP, UP])
    assert second.rewards == [10] * 5
    assert jnp.sum(second.state.items > 0) == 54


def test_nothing_spawns_on_bare_floor_walls_items_and_agents():
    room = parse_map("######\n#.-1.#\n#A.#.#\n######", "room", 2)
    rules = TREASUREHUNT_LARGE._replace(map=room, agents=1, spawn_probability=1.0, vision_radius=1)
    world = make_world(rules)
    start = quick_jit(lambda key: world.begin_turn(world.reset(key, jnp.int32(0))))
    state = start(jax.random.key(3))
    grown = np.asarray(state.items)
    assert state.positions.tolist() == [[2, 1]]
    assert np.argwhere(grown).tolist() == [[1, 1], [1, 3], [1, 4], [2, 2], [2, 4]]
    assert grown[1, 3] == 1


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
    of_world = (spawned > 0).sum((1, 2))
    assert of_world.var() == pytest.approx(64 * 0.1 * 0.9, rel=0.15)


def test_what_spawns_differs_between_turns_episodes_and_worlds():
    rules = TREASUREHUNT._replace(spawn_probability=0.5)
    spawn = quick_jit(
        lambda seed, episode, turn: spawn_items(rules, jax.random.key(seed), episode, turn)
    )
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len({np.asarray(spawn(*place)).tobytes() for place in places}) == 4


# Starts.


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
