"""Hand-made worlds of one env, and the order of their agents."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.config import Entity
from quatrain.envs.treasurehunt.world import make_world
from tests.conftest import params_with
from tests.quick_jit import quick_jit

UP, DOWN, LEFT, RIGHT = range(4)


def entities(**kinds):
    """The kinds of items with these values and weights."""
    return tuple(Entity(name=name, value=kind[0], weight=kind[1]) for name, kind in kinds.items())


def changed(rules, **changes):
    """The rules with changes, which are not checked."""
    return rules.model_copy(update=changes)


TREASUREHUNT = params_with({}).iqn.env
"""The world of social-ai-uoft/sorrel's treasurehunt example."""
TREASUREHUNT_LARGE = changed(
    TREASUREHUNT,
    height=21,
    width=21,
    agents=2,
    max_turns=100,
    entities=entities(gem=(10.0, 1.0), bone=(-10.0, 1.0), food=(5.0, 1.0)),
    spawn_probability=0.005,
    ground="plain",
)
"""A larger world with rare items, a third of them harmful."""


@lru_cache
def _fresh(rules):
    return quick_jit(make_world(rules).reset)(jax.random.key(0), jnp.int32(0))


def placed(rules, positions, items=()):
    """A world in which the agents stand on `positions`; items: ((y, x), entity) pairs."""
    grid = np.zeros((len(rules.map.rows), len(rules.map.rows[0])), np.int8)
    for cell, entity in items:
        grid[cell] = entity
    state = _fresh(rules)
    return state._replace(positions=jnp.asarray(positions, jnp.int16), items=jnp.asarray(grid))


def orders_of(world, key, count):
    """Who acts first, second, ... in each turn that is played with `key`."""

    def order(turn):
        turn_key = jax.random.fold_in(key, turn)
        return turns.turn_order(world, jax.random.fold_in(turn_key, world.agents))

    return jax.vmap(order)(jnp.arange(count))
