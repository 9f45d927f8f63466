"""The rules by example: what agents see, who comes first, what a move pays, what grows."""

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
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from tests.envs.treasurehunt.played import DOWN, LEFT, RIGHT, UP, placed, turn_of

BARREN = TREASUREHUNT._replace(spawn_probability=0.0)
FAR = [(8, 4), (8, 6), (8, 8)]
"""Where agents 2 to 4 stand out of the way."""
WAIT = [DOWN] * 3
"""What they do: they walk into the wall below."""


def image(rows):
    return [[int(cell) for cell in row] for row in rows]


def observed(rules, positions, items=()):
    """What agent 0 sees, by the names of the channels."""
    side = 2 * rules.vision_radius + 1
    state = placed(rules, positions, items)
    frame = jax.jit(make_world(rules).observe)(state, jnp.int32(0))
    assert frame.dtype == jnp.int8
    return dict(zip(channels(rules), np.asarray(frame).reshape(-1, side, side), strict=True))


# Observations.


def test_sizes_of_the_named_worlds():
    assert (frame_size(TREASUREHUNT), frame_size(TREASUREHUNT_LARGE)) == (125, 150)
    assert channels(TREASUREHUNT) == ("empty", "wall", "ground", "gem", "agent")
    assert channels(TREASUREHUNT_LARGE) == ("empty", "wall", "gem", "bone", "food", "agent")


def test_in_a_corner_walls_inside_count_twice_and_the_outside_once():
    views = observed(BARREN, [(1, 1), (1, 3), *FAR], [((3, 2), 1)])
    assert views["wall"].tolist() == image(["11111", "12222", "12000", "12000", "12000"])
    assert views["wall"].sum() == 23
    assert views["ground"].tolist() == image(["00000", "00000", "00111", "00111", "00111"])
    assert np.argwhere(views["gem"]).tolist() == [[4, 3]]
    assert np.argwhere(views["agent"]).tolist() == [[2, 2], [2, 4]]
    assert not views["empty"].any()


def test_in_the_middle_there_is_no_wall_and_ground_everywhere():
    views = observed(BARREN, [(5, 5), (1, 3), *FAR])
    assert (views["wall"].sum(), views["ground"].sum()) == (0, 25)


def test_on_plain_ground_a_wall_counts_once_inside_and_outside():
    views = observed(TREASUREHUNT_LARGE, [(1, 1), (3, 3)], [((1, 2), 1), ((2, 2), 2), ((3, 1), 3)])
    assert views["wall"].tolist() == image(["11111", "11111", "11000", "11000", "11000"])
    assert [np.argwhere(views[name]).tolist() for name in ("gem", "bone", "food")] == [
        [[2, 3]],
        [[3, 3]],
        [[4, 2]],
    ]
    assert np.argwhere(views["agent"]).tolist() == [[2, 2], [4, 4]]


def test_an_agent_may_see_the_whole_map_and_beyond():
    rules = BARREN._replace(map=open_map(4, 6), agents=2, vision_radius=5)
    views = observed(rules, [(2, 4), (1, 1)], [((1, 4), 1)])
    assert views["ground"].sum() == 8
    assert views["wall"].sum() == 121 + (24 - 8) - 8
    assert np.argwhere(views["agent"]).tolist() == [[4, 2], [5, 5]]
    assert np.argwhere(views["gem"]).tolist() == [[4, 5]]


# Moves.


def test_the_first_agent_takes_the_gem_and_the_second_sees_it_there():
    state = placed(BARREN, [(5, 4), (5, 6), *FAR], [((5, 5), 1)])
    after = turn_of(BARREN, state, [RIGHT, LEFT, *WAIT])
    assert after.rewards[:2] == [10, 0]
    assert after.events[:2] == [1, -2]
    assert after.state.positions[:2].tolist() == [[5, 5], [5, 6]]
    gem, agent = after.views[1, 3], after.views[1, 4]
    assert not gem.any()
    assert agent[2, 1] == 1


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ((5, 5), (5, 4), [[5, 6], [5, 5]]),
        ((5, 4), (5, 5), [[5, 4], [5, 6]]),
    ],
)
def test_a_cell_that_is_left_is_free_for_those_who_act_later(first, second, ends):
    after = turn_of(BARREN, placed(BARREN, [first, second, *FAR]), [RIGHT, RIGHT, *WAIT])
    assert after.state.positions[:2].tolist() == ends
    assert after.rewards[:2] == [0, 0]


def test_neighbours_cannot_swap():
    after = turn_of(BARREN, placed(BARREN, [(5, 4), (5, 5), *FAR]), [RIGHT, LEFT, *WAIT])
    assert after.state.positions[:2].tolist() == [[5, 4], [5, 5]]
    assert (after.rewards[:2], after.events[:2]) == ([0, 0], [-2, -2])


def test_a_wall_costs_and_blocks():
    after = turn_of(BARREN, placed(BARREN, [(1, 1), (5, 5), *FAR]), [UP, UP, *WAIT])
    assert (after.rewards, after.events) == ([-1, 0, -1, -1, -1], [-1, 0, -1, -1, -1])
    assert after.state.positions[:2].tolist() == [[1, 1], [4, 5]]


def test_walking_into_an_agent_pays_the_agent_value():
    rules = BARREN._replace(agent_value=-0.5, wall_value=-3.0)
    after = turn_of(rules, placed(rules, [(5, 4), (5, 5), *FAR]), [RIGHT, DOWN, *WAIT])
    assert after.rewards == [-0.5, 0, -3, -3, -3]


def test_a_bone_harms_and_vanishes():
    rules = TREASUREHUNT_LARGE._replace(spawn_probability=0.0)
    state = placed(rules, [(5, 4), (9, 9)], [((5, 5), 2), ((8, 9), 3)])
    after = turn_of(rules, state, [RIGHT, UP])
    assert (after.rewards, after.events) == ([-10, 5], [2, 3])
    assert not after.state.items.any()


# Growth.


def test_everything_free_grows_at_probability_one():
    rules = TREASUREHUNT._replace(spawn_probability=1.0)
    state = placed(rules, [(1, 1), (5, 5), (8, 1), (8, 3), (8, 8)])
    assert jnp.sum(make_world(rules).begin_turn(state).items > 0) == 59
    first = turn_of(rules, state, [UP, RIGHT, LEFT, UP, RIGHT])
    assert first.rewards == [-1, 10, -1, 10, -1]
    assert jnp.sum(first.state.items > 0) == 57
    second = turn_of(rules, first.state, [RIGHT, LEFT, UP, UP, UP])
    assert second.rewards == [10] * 5
    assert jnp.sum(second.state.items > 0) == 54


def test_nothing_grows_on_bare_floor_walls_items_and_agents():
    room = parse_map("######\n#.-1.#\n#A.#.#\n######", "room", 2)
    rules = TREASUREHUNT_LARGE._replace(map=room, agents=1, spawn_probability=1.0, vision_radius=1)
    world = make_world(rules)
    state = world.begin_turn(world.reset(jax.random.key(3), jnp.int32(0)))
    grown = np.asarray(state.items)
    assert state.positions.tolist() == [[2, 1]]
    assert np.argwhere(grown).tolist() == [[1, 1], [1, 3], [1, 4], [2, 2], [2, 4]]
    assert grown[1, 3] == 1


def test_as_many_spawn_on_the_first_turn_as_the_probability_says():
    world = make_world(TREASUREHUNT)
    states = jax.jit(jax.vmap(world.reset, (0, None)))(
        jax.random.split(jax.random.key(4), 8192), jnp.int32(0)
    )
    counts = np.asarray(jnp.sum(jax.jit(jax.vmap(world.begin_turn))(states).items, (1, 2)))
    assert counts.mean() == pytest.approx(59 * 0.02, abs=4 * np.sqrt(59 * 0.02 * 0.98 / 8192))
    assert counts.var() == pytest.approx(59 * 0.02 * 0.98, rel=0.1)


def test_entities_grow_by_their_weight():
    kinds = (
        Entity("gem", 10.0, 2.0),
        Entity("dust", 0.0, 0.0),
        Entity("bone", -10.0, 5.0),
        Entity("food", 5.0, 1.0),
    )
    rules = TREASUREHUNT._replace(entities=kinds, spawn_probability=0.1)
    keys = jax.random.split(jax.random.key(5), 2000)
    grow = jax.jit(jax.vmap(lambda key: spawn_items(rules, key, jnp.int32(1), jnp.int32(2))))
    grown = np.asarray(grow(keys))
    counts = np.bincount(grown.reshape(-1), minlength=5)[1:]
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], counts.sum() * np.array([2, 5, 1]) / 8).pvalue > 1e-4
    assert counts.sum() == pytest.approx(12800, abs=5 * np.sqrt(12800 * 0.9))


def test_growth_differs_between_turns_episodes_and_worlds():
    rules = TREASUREHUNT._replace(spawn_probability=0.5)
    draws = [
        np.asarray(
            spawn_items(rules, jax.random.key(seed), jnp.int32(episode), jnp.int32(turn))
        ).tobytes()
        for seed, episode, turn in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    ]
    assert len(set(draws)) == 4


# Starts.


def test_agents_start_uniformly_on_distinct_cells():
    world = make_world(TREASUREHUNT)
    keys = jax.random.split(jax.random.key(6), 6400)
    positions = np.asarray(jax.jit(jax.vmap(world.reset, (0, None)))(keys, jnp.int32(0)).positions)
    cells = (positions[..., 0] - 1) * 8 + positions[..., 1] - 1
    assert all(len(set(row)) == 5 for row in cells.tolist())
    for agent in (0, 4):
        assert stats.chisquare(np.bincount(cells[:, agent], minlength=64)).pvalue > 1e-4
    # Pairs too: none of the 64·63 is preferred.
    pairs = np.bincount(cells[:, 0] * 64 + cells[:, 1], minlength=64**2).reshape(64, 64)[
        ~np.eye(64, dtype=bool)
    ]
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_the_start_depends_on_key_and_episode_only():
    world = make_world(TREASUREHUNT)
    starts = [
        np.asarray(world.reset(jax.random.key(seed), jnp.int32(episode)).positions).tolist()
        for seed, episode in [(0, 0), (0, 0), (0, 1), (1, 0)]
    ]
    assert starts[0] == starts[1]
    assert len(set(map(str, starts))) == 3


def test_equal_rules_make_the_same_world():
    assert make_world(TREASUREHUNT) is make_world(TREASUREHUNT._replace(agents=5))
