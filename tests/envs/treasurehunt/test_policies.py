"""Policies that need no learning: what they prefer, and what they earn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.layouts import parse_map
from quatrain.envs.treasurehunt.policies import (
    constant_policy,
    free_random_policy,
    oracle_policy,
    random_policy,
)
from quatrain.envs.treasurehunt.rules import TREASUREHUNT, TREASUREHUNT_LARGE, Entity
from quatrain.envs.treasurehunt.world import make_world
from tests.envs.treasurehunt.played import DOWN, LEFT, RIGHT, UP, placed

DRAWS = 400
ALONE = TREASUREHUNT._replace(agents=1)
LARGE = TREASUREHUNT_LARGE
GEM, BONE, FOOD = 1, 2, 3
TUNNEL = LARGE._replace(map=parse_map("#####\n#...#\n#####", "tunnel", 3))


def choices(policy, state):
    """How often agent 0 takes each action."""
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (DRAWS, *leaf.shape)), state)
    drawn = jax.jit(policy)  # compiled once, for equal rules give the same policy
    actions = drawn(jax.random.key(7), jnp.int32(0), jnp.zeros((DRAWS, 1), jnp.int8), states)
    assert actions.dtype == jnp.int8
    return np.bincount(np.asarray(actions), minlength=4).tolist()


def selected(policy, state):
    """The actions that agent 0 takes at all; equally often."""
    counts = np.array(choices(policy, state))
    occupied = np.flatnonzero(counts)
    share = DRAWS / len(occupied)
    assert np.abs(counts[occupied] - share).max() <= 4.5 * np.sqrt(share)
    return set(occupied.tolist())


def test_random_takes_each_action_equally_often():
    assert selected(random_policy(ALONE), placed(ALONE, [(1, 1)])) == {UP, DOWN, LEFT, RIGHT}


def test_constant_goes_up():
    assert selected(constant_policy(ALONE), placed(ALONE, [(1, 1)])) == {UP}


@pytest.mark.parametrize(
    ("positions", "free"),
    [
        ([(5, 5), (9, 9)], {UP, DOWN, LEFT, RIGHT}),
        ([(1, 1), (9, 9)], {DOWN, RIGHT}),
        ([(1, 1), (1, 2)], {DOWN}),
    ],
)
def test_free_random_avoids_walls_and_agents_only(positions, free):
    state = placed(LARGE, positions, [((4, 5), BONE)])
    assert selected(free_random_policy(LARGE), state) == free


def test_who_cannot_move_goes_up():
    tomb = ALONE._replace(map=parse_map("###\n#.#\n###", "tomb", 1), vision_radius=1)
    for policy in (
        free_random_policy(tomb),
        oracle_policy(tomb, "view"),
        oracle_policy(tomb, "full"),
    ):
        assert selected(policy, placed(tomb, [(1, 1)])) == {UP}


@pytest.mark.parametrize(
    ("items", "view", "full"),
    [
        # Nearest of equals in value; a diagonal leaves two ways.
        ([((5, 7), GEM), ((4, 5), GEM)], {UP}, {UP}),
        ([((4, 4), GEM)], {UP, LEFT}, {UP, LEFT}),
        # Chebyshev distance 2 is in view, 3 is not.
        ([((7, 7), GEM)], {DOWN, RIGHT}, {DOWN, RIGHT}),
        ([((5, 8), GEM)], {UP, DOWN, LEFT, RIGHT}, {RIGHT}),
        # Value per step: a gem at 3 steps pays 3.3 each, food at 2 only 2.5, food at 1 pays 5.
        ([((7, 6), GEM), ((5, 3), FOOD)], {DOWN, RIGHT}, {DOWN, RIGHT}),
        ([((7, 6), GEM), ((5, 4), FOOD)], {LEFT}, {LEFT}),
        # Equal value per step (10/2 = 5/1): the nearer one.
        ([((3, 5), GEM), ((6, 5), FOOD)], {DOWN}, {DOWN}),
        # All equal: the first in row-major order.
        ([((5, 4), GEM), ((4, 5), GEM)], {UP}, {UP}),
        ([((5, 6), GEM), ((5, 4), GEM)], {LEFT}, {LEFT}),
        # Bones are no goals and no steps.
        ([((4, 5), BONE)], {DOWN, LEFT, RIGHT}, {DOWN, LEFT, RIGHT}),
        ([((3, 5), GEM), ((4, 5), BONE)], {DOWN, LEFT, RIGHT}, {DOWN, LEFT, RIGHT}),
        ([((3, 6), GEM), ((4, 5), BONE)], {RIGHT}, {RIGHT}),
    ],
)
def test_the_oracle_walks_to_the_greatest_value_per_step(items, view, full):
    state = placed(LARGE, [(5, 5), (15, 15)], items)
    assert selected(oracle_policy(LARGE, "view"), state) == view
    assert selected(oracle_policy(LARGE, "full"), state) == full


def test_the_oracle_goes_round_agents():
    state = placed(LARGE, [(5, 5), (5, 6)], [((6, 7), GEM)])
    assert selected(oracle_policy(LARGE, "view"), state) == {DOWN}


def test_between_bones_the_oracle_takes_one_rather_than_stand():
    state = placed(TUNNEL, [(1, 2), (1, 3)], [((1, 1), BONE)])
    assert selected(oracle_policy(TUNNEL, "view"), state) == {LEFT}


def test_items_without_value_are_neither_goal_nor_harm():
    rules = LARGE._replace(entities=(Entity("dust", 0.0, 1.0), Entity("gem", 10.0, 1.0)))
    state = placed(rules, [(5, 5), (15, 15)], [((4, 5), 1), ((3, 5), 2)])
    assert selected(oracle_policy(rules, "view"), state) == {UP}


def mean_returns(rules, policy, worlds=512):
    """Of each agent, per episode."""
    world = make_world(rules)

    def episode(key):
        envs = turns.start(world, jax.random.split(key, worlds), 1)
        played = turns.play(world, envs, policy, jax.random.key(8), jnp.int32(0), rules.max_turns)
        return played.turns.rewards.sum(0).mean(1)

    return np.asarray(jax.jit(episode)(jax.random.key(9)))


@pytest.mark.parametrize(
    ("policy", "expected", "tolerance"),
    [
        (constant_policy(TREASUREHUNT), -35.9, 1.5),
        (random_policy(TREASUREHUNT), 51.5, 2.5),
        (free_random_policy(TREASUREHUNT), 63.2, 2.5),
        (oracle_policy(TREASUREHUNT, "view"), 106.0, 3.0),
        (oracle_policy(TREASUREHUNT, "full"), 107.3, 3.0),
    ],
)
def test_returns_in_the_small_world(policy, expected, tolerance):
    assert mean_returns(TREASUREHUNT, policy).mean() == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("policy", "expected", "tolerance"),
    [
        (constant_policy(LARGE), -89.2, 2.0),
        (random_policy(LARGE), 12.0, 4.0),
        (free_random_policy(LARGE), 16.8, 4.0),
        (oracle_policy(LARGE, "view"), 173.9, 6.0),
        (oracle_policy(LARGE, "full"), 215.0, 6.0),
    ],
)
def test_returns_in_the_large_world(policy, expected, tolerance):
    assert mean_returns(LARGE, policy).mean() == pytest.approx(expected, abs=tolerance)


def test_the_first_choice_pays_and_shuffling_takes_it_away():
    fixed = mean_returns(TREASUREHUNT, oracle_policy(TREASUREHUNT, "view"))
    np.testing.assert_allclose(fixed, [116.8, 112.4, 105.9, 102.3, 95.3], atol=4.5)
    rules = TREASUREHUNT._replace(agent_order="shuffled")
    shuffled = mean_returns(rules, oracle_policy(rules, "view"), 1024)
    assert fixed[0] - fixed[4] > 10
    assert abs(shuffled[0] - shuffled[4]) < 4
