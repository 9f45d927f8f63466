"""Rules -> policies that need no learning: floors (random, constant) and ceilings (oracles) of every report."""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int8, Int32, Key

from quatrain.envs.treasurehunt import layouts, world
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import State

UP = 0
ACTIONS = len(world.MOVES)
_NEVER = np.iinfo(np.int32).max


@lru_cache(maxsize=64)
def random_policy(_rules: Rules) -> Policy:
    """Each of the four actions equally likely, whatever is seen."""

    def act(key: Array, _agent: Array, stack: Array, _states: object) -> Int8[Array, " lanes"]:
        return (jax.random.bits(key, (len(stack),), jnp.uint8) % ACTIONS).astype(jnp.int8)

    return act


@lru_cache(maxsize=64)
def constant_policy(_rules: Rules) -> Policy:
    """Always up."""

    def act(_key: Array, _agent: Array, stack: Array, _states: object) -> Int8[Array, " lanes"]:
        return jnp.full(len(stack), UP, jnp.int8)

    return act


@lru_cache(maxsize=64)
def free_random_policy(rules: Rules) -> Policy:
    """Equally likely among the moves that neither a wall nor an agent blocks; up if all are blocked."""

    def free(state: State, agent: Array) -> Bool[Array, " actions"]:
        return world.events(rules, state, world.targets(state, agent)) >= 0

    return _uniform_among(free)


@lru_cache(maxsize=64)
def oracle_policy(rules: Rules, view: Literal["view", "full"]) -> Policy:
    """Walk to the item of the greatest value per step, of those in the agent's own view or of all.

    Equals: the nearer one, then the first in row-major order. A step is any that is not blocked and takes no item
    of negative value (if none: any that is not blocked; if none: up) and ends nearest to that item, all of them
    equally likely; without an item to walk to any step will do. It has no memory and plans no way around walls.
    """

    def best(state: State, agent: Array) -> Bool[Array, " actions"]:
        steps = world.targets(state, agent)
        allowed = _harmless(rules, world.events(rules, state, steps))
        rank = _ranks(rules, state, agent, view).reshape(-1)
        goal = jnp.stack(jnp.divmod(rank.argmin(), state.items.shape[1]))
        distance = jnp.where(allowed, jnp.abs(steps - goal).sum(-1), _NEVER)
        return allowed & ((distance == distance.min()) | (rank.min() == _NEVER))

    return _uniform_among(best)


def _uniform_among(allowed: Callable[[State, Array], Array]) -> Policy:
    """The policy that draws among allowed(state, agent); action 0 if there is none."""

    def act(
        key: Key[Array, ""], agent: Array, stack: Array, states: State
    ) -> Int8[Array, " lanes"]:
        lots = jax.random.uniform(key, (len(stack), ACTIONS))
        among = jax.vmap(allowed, (0, None))(states, agent)
        return jnp.where(among, lots, -1.0).argmax(-1).astype(jnp.int8)

    return act


def _harmless(rules: Rules, events: Int8[Array, " actions"]) -> Bool[Array, " actions"]:
    harms = np.array([False, *(entity.value < 0 for entity in rules.entities)])
    passable = events >= 0
    harmless = passable & ~jnp.asarray(harms)[jnp.maximum(events, 0)]
    return jnp.where(harmless.any(), harmless, passable)


def _ranks(rules: Rules, state: State, agent: Array, view: str) -> Int32[Array, "height width"]:
    """How much each cell's item is to be preferred: 0 most; _NEVER without an item of positive value in sight."""
    height, width = state.items.shape
    y, x = state.positions[agent].astype(jnp.int32)
    dy, dx = jnp.abs(jnp.arange(height) - y)[:, None], jnp.abs(jnp.arange(width) - x)[None, :]
    rank = jnp.asarray(_preference(rules))[state.items, dy + dx]
    in_sight = jnp.maximum(dy, dx) <= rules.vision_radius
    return jnp.where(in_sight, rank, _NEVER) if view == "view" else rank


def _preference(rules: Rules) -> Int32[np.ndarray, "kinds distances"]:
    """Rank of an item of kind k at a Manhattan distance, by value per step and then nearness, exact in fractions."""
    height, width = layouts.walls(rules.map).shape
    merit = {
        (kind, distance): (-Fraction(entity.value) / distance, distance)
        for kind, entity in enumerate(rules.entities, start=1)
        for distance in range(1, height + width)
        if entity.value > 0
    }
    order = {value: rank for rank, value in enumerate(sorted(set(merit.values())))}
    ranks = np.full((len(rules.entities) + 1, height + width), _NEVER, np.int32)
    for cell, value in merit.items():
        ranks[cell] = order[value]
    return ranks
