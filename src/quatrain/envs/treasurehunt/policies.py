"""config -> reference policies without learning: random, constant, oracles"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int8, Int32, Key

from quatrain.envs.treasurehunt import world
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import State

UP = 0
ACTIONS = len(world.MOVES)
_NEVER = np.iinfo(np.int32).max


@lru_cache(maxsize=64)
def random_policy(_rules: Env) -> Policy:
    """Returns the policy that draws uniformly among the four actions."""

    return lambda key, _agent, stack, _states: (
        jax.random.bits(key, (len(stack),), jnp.uint8) % ACTIONS
    ).astype(jnp.int8)


@lru_cache(maxsize=64)
def constant_policy(_rules: Env) -> Policy:
    """Returns the policy that always moves up."""

    return lambda _key, _agent, stack, _states: jnp.full(len(stack), UP, jnp.int8)


@lru_cache(maxsize=64)
def free_random_policy(rules: Env) -> Policy:
    """Returns the policy that draws uniformly among unblocked moves; up if all are blocked."""
    return _uniform_among(
        lambda state, agent: world.events(rules, state, world.targets(state, agent)) >= 0
    )


@lru_cache(maxsize=64)
def oracle_policy(rules: Env, view: Literal["view", "full"]) -> Policy:
    """Returns the policy that walks to the item of the greatest value per step.

    view: "view" considers the items in the agent's own view, "full" all of them. Ties: the nearer
    item, then the first in row-major order. An allowed step is unblocked and takes no item of
    negative value; if there is none, any unblocked step is allowed; if there is none, up. Draws
    uniformly among the allowed steps that end nearest to the item, or among all allowed steps if
    there is no item to walk to. Has no memory and plans no way around walls.
    """

    def best(state: State, agent: Array) -> Bool[Array, " action"]:
        cells = world.targets(state, agent)
        allowed = _harmless(rules, world.events(rules, state, cells))
        rank = _ranks(rules, state, agent, view).reshape(-1)
        goal = jnp.stack(jnp.divmod(rank.argmin(), state.items.shape[1]))
        distance = jnp.where(allowed, jnp.abs(cells - goal).sum(-1), _NEVER)
        return allowed & ((distance == distance.min()) | (rank.min() == _NEVER))

    return _uniform_among(best)


def _uniform_among(allowed: Callable[[State, Array], Array]) -> Policy:
    """Returns the policy that draws among allowed(state, agent); action 0 if there is none."""

    def act(key: Key[Array, ""], agent: Array, stack: Array, states: State) -> Int8[Array, " env"]:
        draws = jax.random.uniform(key, (len(stack), ACTIONS))
        mask = jax.vmap(allowed, (0, None))(states, agent)
        return jnp.where(mask, draws, -1.0).argmax(-1).astype(jnp.int8)

    return act


def _harmless(rules: Env, events: Int8[Array, " action"]) -> Bool[Array, " action"]:
    harms = jnp.asarray([False, *(entity.value < 0 for entity in rules.entities)])
    unblocked = events >= 0
    harmless = unblocked & ~harms[jnp.maximum(events, 0)]
    return jnp.where(harmless.any(), harmless, unblocked)


def _ranks(rules: Env, state: State, agent: Array, view: str) -> Int32[Array, "height width"]:
    """Returns the rank of each cell's item, 0 the best; _NEVER without visible positive item."""
    height, width = state.items.shape
    y, x = state.positions[agent].astype(jnp.int32)
    dy = jnp.abs(jnp.arange(height) - y)[:, None]
    dx = jnp.abs(jnp.arange(width) - x)[None, :]
    rank = jnp.asarray(_item_ranks(rules))[state.items, dy + dx]
    if view == "full":
        return rank
    return jnp.where(jnp.maximum(dy, dx) <= rules.vision_radius, rank, _NEVER)


def _item_ranks(rules: Env) -> Int32[np.ndarray, "entity distance"]:
    """Ranks items by value per step, then nearness, at each Manhattan distance; exact fractions."""
    height, width = world.walls(rules.map).shape
    merits = {
        (entity, distance): (-Fraction(kind.value) / distance, distance)
        for entity, kind in enumerate(rules.entities, start=1)
        for distance in range(1, height + width)
        if kind.value > 0
    }
    rank_of = {merit: rank for rank, merit in enumerate(sorted(set(merits.values())))}
    ranks = np.full((len(rules.entities) + 1, height + width), _NEVER, np.int32)
    for place, merit in merits.items():
        ranks[place] = rank_of[merit]
    return ranks
