"""Turns of many worlds: order, histories, episodes; the same bits however the turns are split over
calls.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.turns import ActionResult, TurnEnd, World
from tests.envs.treasurehunt.played import orders_of
from tests.quick_jit import quick_jit

KEY = jax.random.key(1)


@partial(quick_jit, static_argnums=(0, 1, 4))
def play(world, policy, envs, first_turn, count):
    return turns.play(world, envs, policy, KEY, first_turn, count)


class Countdown(NamedTuple):
    """A world whose envs end apart: by its key after 2, 3, ... turns."""

    left: Array
    turn: Array
    episode: Array
    key: Array
    acted: Array


def length(key: Array) -> Array:
    return 2 + jax.random.randint(key, (), 0, 3)


COUNTDOWN = World(
    agents=3,
    frame_size=2,
    shuffled=True,
    reset=lambda key, episode: Countdown(
        length(key), jnp.int32(0), jnp.asarray(episode, jnp.int32), key, jnp.int32(0)
    ),
    begin_turn=lambda state: state._replace(acted=jnp.int32(0)),
    observe=lambda state, agent: jnp.stack([state.turn + 1, agent + 1]).astype(jnp.int8),
    # The reward is the number of agents that have acted before in this turn.
    act=lambda state, _agent, _action: ActionResult(
        state._replace(acted=state.acted + 1), state.acted.astype(jnp.float32), jnp.int8(0)
    ),
    end_turn=lambda state: TurnEnd(
        state._replace(turn=state.turn + 1, left=state.left - 1), state.left == 1, jnp.bool_(False)
    ),
)


def digits(_key, agent, stack, _states):
    """Returns the turns of the three frames as digits to the base 5; -1 if another agent's frame is
    among them.
    """
    turn, owner = jnp.moveaxis(stack.reshape(-1, 3, 2), 2, 0)
    foreign = ((owner != agent + 1) & (turn > 0)).any(1)
    return jnp.where(foreign, -1, turn @ jnp.array([25, 5, 1], jnp.int8)).astype(jnp.int8)


def test_envs_end_apart_and_agents_see_the_last_frames_of_the_episode_oldest_first():
    keys = jax.random.split(jax.random.key(3), 6)
    lengths = np.asarray(jax.vmap(length)(keys))
    assert len(set(lengths.tolist())) > 1
    envs, parts = turns.start(COUNTDOWN, keys, frames=3), []
    for first in (0, 6):
        envs, part = play(COUNTDOWN, digits, envs, jnp.int32(first), 6)
        parts.append(part)
    played = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    turn = np.arange(12)[:, None] % lengths
    np.testing.assert_array_equal(played.turn, turn)
    np.testing.assert_array_equal(played.terminated, turn == lengths - 1)
    np.testing.assert_array_equal(envs.state.episode, 12 // lengths)
    expected = 25 * np.maximum(turn - 1, 0) + 5 * turn + turn + 1
    for agent in range(3):
        np.testing.assert_array_equal(played.actions[:, agent], expected)
        np.testing.assert_array_equal(played.frames[:, agent, :, 0], turn + 1)
        assert (played.frames[:, agent, :, 1] == agent + 1).all()
    order = np.asarray(orders_of(COUNTDOWN, KEY, 12))
    assert len(np.unique(order, axis=0)) > 1
    places = np.broadcast_to(np.argsort(order)[:, :, None], played.rewards.shape)
    np.testing.assert_array_equal(played.rewards, places)
