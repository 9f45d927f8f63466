"""Policies that need no learning: what they prefer, and what they earn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.policies import (
    constant_policy,
    free_random_policy,
    oracle_policy,
    random_policy,
)
from quatrain.envs.treasurehunt.world import make_world
from tests.envs.treasurehunt.played import (
    DOWN,
    LEFT,
    RIGHT,
    TREASUREHUNT,
    TREASUREHUNT_LARGE,
    UP,
    changed,
    entities,
    placed,
)
from tests.quick_jit import quick_jit

DRAWS = 400
SMALL, LARGE = TREASUREHUNT, TREASUREHUNT_LARGE
GEM, BONE, FOOD, DUST = 1, 2, 3, 4
HUNT = changed(LARGE, entities=(*LARGE.entities, *entities(dust=(0.0, 1.0))))
ALL = {UP, DOWN, LEFT, RIGHT}


@partial(quick_jit, static_argnums=0)
def drawn(policy, state):
    """Draws actions of agent 0; equal rules give the same policy, so it compiles once."""
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (DRAWS, *leaf.shape)), state)
    return policy(jax.random.key(7), jnp.int32(0), jnp.zeros((DRAWS, 1), jnp.int8), states)


def selected(policy, state):
    """Returns the actions that agent 0 takes at all; asserts that it does so equally often."""
    actions = drawn(policy, state)
    assert actions.dtype == jnp.int8
    counts = np.bincount(np.asarray(actions), minlength=4)
    occupied = np.flatnonzero(counts)
    share = DRAWS / len(occupied)
    assert np.abs(counts[occupied] - share).max() <= 4.5 * np.sqrt(share)
    return set(occupied.tolist())


@pytest.mark.parametrize(
    ("positions", "free"),
    [([(5, 5), (9, 9)], ALL), ([(1, 1), (9, 9)], {DOWN, RIGHT}), ([(1, 1), (1, 2)], {DOWN})],
)
def test_free_random_avoids_walls_and_agents_only(positions, free):
    state = placed(HUNT, positions, [((4, 5), BONE)])
    assert selected(free_random_policy(HUNT), state) == free
    assert selected(random_policy(HUNT), state) == ALL
    assert selected(constant_policy(HUNT), state) == {UP}


def test_an_agent_that_cannot_move_goes_up():
    tomb = changed(SMALL, layout="###\n#.#\n###", agents=1, vision_radius=1)
    for policy in (free_random_policy(tomb), oracle_policy(tomb, "full")):
        assert selected(policy, placed(tomb, [(1, 1)])) == {UP}


@pytest.mark.parametrize(
    ("items", "view", "full"),
    [
        # Nearest of equals in value; a diagonal leaves two ways.
        ([((5, 7), GEM), ((4, 5), GEM)], {UP}, {UP}),
        ([((4, 4), GEM)], {UP, LEFT}, {UP, LEFT}),
        # Chebyshev distance 2 is in view, 3 is not.
        ([((7, 7), GEM)], {DOWN, RIGHT}, {DOWN, RIGHT}),
        ([((5, 8), GEM)], ALL, {RIGHT}),
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
        # Items without value are neither goal nor harm.
        ([((4, 5), DUST), ((3, 5), GEM)], {UP}, {UP}),
    ],
)
def test_the_oracle_walks_to_the_greatest_value_per_step(items, view, full):
    state = placed(HUNT, [(5, 5), (15, 15)], items)
    assert selected(oracle_policy(HUNT, "view"), state) == view
    assert selected(oracle_policy(HUNT, "full"), state) == full


def test_the_oracle_goes_round_agents_and_takes_a_bone_rather_than_stand():
    state = placed(HUNT, [(5, 5), (5, 6)], [((6, 7), GEM)])
    assert selected(oracle_policy(HUNT, "view"), state) == {DOWN}
    enclosed = [((y, x), BONE) for y, x in ((1, 2), (2, 1))]
    state = placed(HUNT, [(1, 1), (2, 1)], enclosed[:1])
    assert selected(oracle_policy(HUNT, "view"), state) == {RIGHT}


def mean_returns(rules, policy, worlds=512):
    """Of each agent, per episode."""
    world = make_world(rules)

    @quick_jit
    def episode(key):
        envs = turns.start(world, jax.random.split(key, worlds), 1)
        played = turns.play(world, envs, policy, jax.random.key(8), jnp.int32(0), rules.max_turns)
        return played.turns.rewards.sum(0).mean(1)

    return np.asarray(episode(jax.random.key(9)))


def test_an_oracle_of_the_small_world_earns_twice_as_much_as_chance_and_the_first_choice_pays():
    assert mean_returns(SMALL, random_policy(SMALL)).mean() == pytest.approx(51.5, abs=2.5)
    oracle = mean_returns(SMALL, oracle_policy(SMALL, "view"))
    assert oracle.mean() == pytest.approx(106.0, abs=3.0)
    np.testing.assert_allclose(oracle, [116.8, 112.4, 105.9, 102.3, 95.3], atol=4.5)
    assert oracle[0] - oracle[4] > 10
