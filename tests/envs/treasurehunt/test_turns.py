"""Turns of many worlds: order, histories, episodes; the same bits however the turns are split over
calls.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.policies import constant_policy, random_policy
from quatrain.envs.treasurehunt.rules import TREASUREHUNT
from quatrain.envs.treasurehunt.turns import ActionResult, TurnEnd, World
from quatrain.envs.treasurehunt.world import make_world
from tests.envs.treasurehunt.played import order_of

SHORT = TREASUREHUNT._replace(max_turns=7, agents=3)
SHUFFLED = SHORT._replace(agent_order="shuffled")
KEY = jax.random.key(1)


@partial(jax.jit, static_argnums=(0, 1, 4))
def play(world, policy, envs, first_turn, count):
    return turns.play(world, envs, policy, KEY, first_turn, count)


def begun(rules, envs=4, frames=3):
    return jax.jit(turns.start, static_argnums=(0, 2))(
        make_world(rules), jax.random.split(jax.random.key(2), envs), frames
    )


def assert_same(item: Any, other: Any) -> None:
    for leaf, other_leaf in zip(jax.tree.leaves(item), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, other_leaf = jax.random.key_data(leaf), jax.random.key_data(other_leaf)
        assert leaf.dtype == other_leaf.dtype
        np.testing.assert_array_equal(leaf, other_leaf)


@pytest.mark.parametrize("rules", [SHORT, SHUFFLED])
def test_any_split_of_turns_over_calls_gives_the_same_bits(rules):
    world, policy, envs = make_world(rules), random_policy(rules), begun(rules)
    whole = play(world, policy, envs, jnp.int32(5), 20)
    parts, number = [], 5
    for _ in range(5):
        envs, part = play(world, policy, envs, jnp.int32(number), 4)
        parts.append(part)
        number += 4
    assert_same(whole.turns, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))
    assert_same(whole.envs, envs)


def test_episodes_are_cut_after_their_last_turn_and_start_anew():
    rules = SHORT
    played = play(make_world(rules), random_policy(rules), begun(rules), jnp.int32(0), 16)
    number = np.asarray(played.turns.turn)
    assert (number == (np.arange(16) % 7)[:, None]).all()
    np.testing.assert_array_equal(played.turns.truncated, number == 6)
    assert not played.turns.terminated.any()
    assert played.envs.state.episode.tolist() == [2] * 4
    assert played.envs.state.turn.tolist() == [2] * 4
    assert len({bytes(np.asarray(frame)) for frame in played.turns.frames[[0, 7, 14], 0, 0]}) == 3


@pytest.mark.parametrize("rules", [SHORT, SHUFFLED])
@pytest.mark.parametrize("frames", [1, 2, 5])
def test_the_stack_holds_the_last_frames_of_the_episode_oldest_first(rules, frames):
    world = make_world(rules)
    stacks = []

    def policy(key, agent, stack, states):
        jax.debug.callback(
            lambda *views: stacks.append(tuple(map(np.asarray, views))), agent, states.turn, stack
        )
        return random_policy(rules)(key, agent, stack, states)

    envs = begun(rules, envs=2, frames=frames)
    played = turns.play(world, envs, policy, KEY, jnp.int32(0), 9)
    jax.effects_barrier()
    views = np.asarray(played.turns.frames)
    assert len(stacks) == 9 * 3
    for call, (agent, turn, stack) in enumerate(stacks):
        number = call // 3
        expected = [
            views[number - age, agent] if age <= turn[0] else np.zeros_like(views[0, 0])
            for age in range(frames)[::-1]
        ]
        np.testing.assert_array_equal(stack, np.concatenate(expected, 1))
    back = [
        views[8 - age].astype(int) if age < 2 else np.zeros_like(views[0])
        for age in range(frames - 1)[::-1]
    ]
    wanted_history = np.stack(back, 2) if back else np.zeros((3, 2, 0, 125))
    np.testing.assert_array_equal(played.envs.history, wanted_history)


def test_shuffled_agents_act_in_every_order_equally_often():
    world = make_world(SHUFFLED)
    keys = jax.vmap(lambda turn: jax.random.fold_in(KEY, turn))(jnp.arange(6000))
    orders = np.asarray(jax.jit(jax.vmap(lambda key: turns.turn_order(world, key)))(keys))
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert counts.sum() == 6000
    assert np.abs(counts - 1000).max() < 150


def test_records_go_by_the_agents_index_whatever_their_order():
    calls = []

    def policy(_key, agent, stack, _states):
        jax.debug.callback(lambda agent: calls.append(int(agent)), agent, ordered=True)
        return jnp.full(len(stack), agent % 4, jnp.int8)

    played = turns.play(make_world(SHUFFLED), begun(SHUFFLED), policy, KEY, jnp.int32(0), 12)
    jax.effects_barrier()
    assert (played.turns.actions == jnp.arange(3)[None, :, None]).all()
    orders = np.array(calls).reshape(12, 3)
    assert len({tuple(order) for order in orders.tolist()}) > 1
    world = make_world(SHUFFLED)
    expected = [order_of(world, KEY, turn) for turn in range(12)]
    np.testing.assert_array_equal(orders, expected)


def test_two_policies_meet_the_same_growth():
    rules = TREASUREHUNT._replace(agents=1, spawn_probability=0.3)
    world, envs = make_world(rules), begun(rules, envs=3)
    grown = []
    for policy in (random_policy(rules), constant_policy(rules)):
        state = play(world, policy, envs, jnp.int32(0), 3).envs.state
        empty = state._replace(
            items=jnp.zeros_like(state.items), positions=jnp.ones_like(state.positions)
        )
        grown.append(np.asarray(jax.vmap(world.begin_turn)(empty).items))
    assert grown[0].any()
    np.testing.assert_array_equal(*grown)


class Countdown(NamedTuple):
    """A world whose envs end apart: by its key after 2, 3, ... turns."""

    left: Array
    turn: Array
    episode: Array
    key: Array


COUNTDOWN = World(
    agents=1,
    frame_size=1,
    shuffled=False,
    reset=lambda key, episode: Countdown(
        2 + jax.random.randint(key, (), 0, 3), jnp.int32(0), jnp.asarray(episode, jnp.int32), key
    ),
    begin_turn=lambda state: state,
    observe=lambda state, _agent: (state.turn + 1).astype(jnp.int8)[None],
    act=lambda state, _agent, action: ActionResult(state, action.astype(jnp.float32), jnp.int8(0)),
    end_turn=lambda state: TurnEnd(
        state._replace(turn=state.turn + 1, left=state.left - 1), state.left == 1, jnp.bool_(False)
    ),
)


def test_envs_end_apart_and_only_they_lose_their_history():
    keys = jax.random.split(jax.random.key(3), 6)
    lengths = np.asarray(jax.vmap(lambda key: 2 + jax.random.randint(key, (), 0, 3))(keys))
    assert len(set(lengths.tolist())) > 1

    def policy(_key, _agent, stack, _states):
        return stack[:, 0]  # the frame of the turn before

    envs = turns.start(COUNTDOWN, keys, frames=2)
    played = turns.play(COUNTDOWN, envs, policy, KEY, jnp.int32(0), 12)
    expected = np.arange(12)[:, None] % lengths
    np.testing.assert_array_equal(played.turns.turn, expected)
    np.testing.assert_array_equal(played.turns.actions[:, 0], expected)
    np.testing.assert_array_equal(played.turns.terminated, expected == lengths - 1)
    np.testing.assert_array_equal(played.envs.state.episode, 12 // lengths)
