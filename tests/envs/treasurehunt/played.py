"""Hand-made worlds of one lane and turns with given actions."""

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.world import State, make_world

UP, DOWN, LEFT, RIGHT = range(4)


class Outcome(NamedTuple):
    """One turn of one world: the state after it, and rewards, events and observations of its
    agents.
    """

    state: State
    rewards: list[float]
    events: list[int]
    views: np.ndarray


@lru_cache
def _fresh(rules):
    return jax.jit(make_world(rules).reset)(jax.random.key(0), jnp.int32(0))


def placed(rules, positions, items=()):
    """A world in which the agents stand on `positions`; items: ((y, x), entity) pairs."""
    grid = np.zeros((len(rules.map.rows), len(rules.map.rows[0])), np.int8)
    for cell, entity in items:
        grid[cell] = entity
    state = _fresh(rules)
    return state._replace(positions=jnp.asarray(positions, jnp.int16), items=jnp.asarray(grid))


def turn_of(rules, state, actions):
    """Let the agents act in their order."""
    world = make_world(rules)
    envs = turns.EnvStates(
        jax.tree.map(lambda leaf: leaf[None], state),
        jnp.zeros((world.agents, 1, 0, world.frame_size), jnp.int8),
    )
    played = _play(world, envs, jnp.asarray(actions, jnp.int8))
    side = 2 * rules.vision_radius + 1
    return Outcome(
        jax.tree.map(lambda leaf: leaf[0], played.envs.state),
        np.asarray(played.turns.rewards)[0, :, 0].tolist(),
        np.asarray(played.turns.events)[0, :, 0].tolist(),
        np.asarray(played.turns.frames)[0, :, 0].reshape(rules.agents, -1, side, side),
    )


def order_of(world, key, turn):
    """Who acts first, second, ... in a turn that is played with `key`."""
    turn_key = jax.random.fold_in(key, turn)
    return np.asarray(turns.turn_order(world, jax.random.fold_in(turn_key, world.agents))).tolist()


@partial(jax.jit, static_argnums=0)
def _play(world, envs, actions):
    def policy(_key, agent, stack, _states):
        return jnp.full(len(stack), actions[agent])

    return turns.play(world, envs, policy, jax.random.key(1), jnp.int32(0), 1)
