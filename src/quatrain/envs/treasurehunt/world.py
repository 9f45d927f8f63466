"""Rules -> the pure functions of one treasure hunt: what grows, what an agent sees, what a move does."""

from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int, Int8, Int16, Int32, Key

from quatrain.envs.treasurehunt import layouts
from quatrain.envs.treasurehunt.rules import Rules, frame_size
from quatrain.envs.treasurehunt.turns import Acted, Ended, World

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""(dy, dx) of the actions up, down, left, right."""

FLOOR, WALL, AGENT = 0, -1, -2
"""Events of an action; k >= 1 is an item of entity k."""

_STARTS = 2**32 - 1
"""Folded in where a turn's number goes: no turn draws what the start cells draw."""


class State(NamedTuple):
    """One world. items: 0 none, k an item of entity k. positions: (y, x) of each agent."""

    items: Int8[Array, "height width"]
    positions: Int16[Array, "agents 2"]
    turn: Int32[Array, ""]
    episode: Int32[Array, ""]
    key: Key[Array, ""]


@lru_cache(maxsize=64)
def make_world(rules: Rules) -> World:
    """The world of these rules; the same rules give the same object, so that programs are compiled once."""
    return World(
        agents=rules.agents,
        frame_size=frame_size(rules),
        shuffled=rules.agent_order == "shuffled",
        reset=lambda key, episode: _reset(rules, key, episode),
        begin_turn=lambda state: _begin_turn(rules, state),
        observe=lambda state, agent: _observe(rules, state, agent),
        act=lambda state, agent, action: _act(rules, state, agent, action),
        end_turn=lambda state: _end_turn(rules, state),
    )


def sprouts(
    rules: Rules, key: Key[Array, ""], episode: Int[Array, ""], turn: Int[Array, ""]
) -> Int8[Array, "height width"]:
    """The item that grows in each cell at the start of a turn if the cell is free, else 0; whatever agents do.

    One uniform u per cell decides: something grows if u < p, and u/p then chooses the entity by weight.
    """
    probability = rules.spawn_probability
    fertile = layouts.spawnable(rules.map)
    noise_key = jax.random.fold_in(jax.random.fold_in(key, episode), turn)
    noise = jax.random.uniform(noise_key, (fertile.shape[0] - 2, fertile.shape[1] - 2))
    weights = np.cumsum([entity.weight for entity in rules.entities])
    thresholds = probability * (weights / weights[-1])
    kind = 1 + sum((noise >= threshold).astype(jnp.int8) for threshold in thresholds[:-1])
    grown = jnp.where(noise < probability, kind, 0).astype(jnp.int8)
    return jnp.where(fertile, jnp.pad(grown, 1), 0)


def targets(state: State, agent: Int[Array, ""]) -> Int16[Array, "actions 2"]:
    """The cell that each action leads to."""
    return state.positions[agent] + jnp.asarray(MOVES, jnp.int16)


def events(rules: Rules, state: State, cells: Int16[Array, "*cells 2"]) -> Int8[Array, "*cells"]:
    """What awaits an agent that moves to each cell: WALL, AGENT, FLOOR or an item's entity."""
    y, x = cells[..., 0], cells[..., 1]
    taken = (cells[..., None, :] == state.positions).all(-1).any(-1)
    blocked = jnp.asarray(layouts.walls(rules.map))[y, x]
    return jnp.where(blocked, WALL, jnp.where(taken, AGENT, state.items[y, x])).astype(jnp.int8)


def _reset(rules: Rules, key: Array, episode: Array) -> State:
    start_key = jax.random.fold_in(jax.random.fold_in(key, episode), _STARTS)
    cells = jnp.asarray(layouts.starts(rules.map), jnp.int16)
    _, chosen = lax.top_k(jax.random.uniform(start_key, (len(cells),)), rules.agents)
    return State(
        items=jnp.asarray(layouts.items(rules.map)),
        positions=cells[chosen],
        turn=jnp.int32(0),
        episode=jnp.asarray(episode, jnp.int32),
        key=key,
    )


def _begin_turn(rules: Rules, state: State) -> State:
    taken = reduce(or_, [_only(state, position) for position in state.positions])
    grown = sprouts(rules, state.key, state.episode, state.turn)
    return state._replace(items=jnp.where((state.items == 0) & ~taken, grown, state.items))


def _observe(rules: Rules, state: State, agent: Array) -> Int8[Array, " frame"]:
    side = 2 * rules.vision_radius + 1
    y, x = state.positions[agent]
    scenery = _scenery(rules)
    around = lax.dynamic_slice(scenery, (jnp.int16(0), y, x), (len(scenery), side, side))
    items = lax.dynamic_slice(jnp.pad(state.items, rules.vision_radius), (y, x), (side, side))
    kinds = [items == kind for kind in range(1, len(rules.entities) + 1)]
    rest = [
        layer.reshape(1, -1).astype(jnp.int8) for layer in (*kinds, _in_sight(rules, state, agent))
    ]
    return jnp.concatenate([around.reshape(len(scenery), -1), *rest]).reshape(-1)


def _scenery(rules: Rules) -> Int8[np.ndarray, "channels rows columns"]:
    """The channels that never change, with a margin of vision_radius cells outside the map.

    With `sand` floor lies beneath everything, so a wall is counted in both layers and a cell outside in one.
    """
    radius = rules.vision_radius
    wall = np.pad(
        layouts.walls(rules.map).astype(np.int8) * (2 if rules.ground == "sand" else 1), radius
    )
    ground = np.pad(~layouts.walls(rules.map), radius).astype(np.int8)
    outside = np.pad(
        np.zeros((len(rules.map.rows), len(rules.map.rows[0])), np.int8), radius, constant_values=1
    )
    empty = np.zeros_like(wall)
    return np.stack(
        [empty, wall + outside, ground] if rules.ground == "sand" else [empty, wall + outside]
    )


def _in_sight(rules: Rules, state: State, agent: Array) -> Bool[Array, " cells"]:
    """Where agents stand, around one of them and with itself in the middle."""
    side = 2 * rules.vision_radius + 1
    offsets = state.positions - state.positions[agent] + rules.vision_radius
    cells = jnp.where(
        ((offsets >= 0) & (offsets < side)).all(-1), offsets[:, 0] * side + offsets[:, 1], -1
    )
    # One comparison for each agent: a reduction over agents would run cell by cell.
    return reduce(or_, [jnp.arange(side**2) == cell for cell in cells])


def _act(rules: Rules, state: State, agent: Array, action: Array) -> Acted:
    cell = targets(state, agent)[action]
    event = events(rules, state, cell)
    # Negative events count from the end of the table.
    rewards = (
        0.0,
        *(entity.value for entity in rules.entities),
        rules.agent_value,
        rules.wall_value,
    )
    acts = (jnp.arange(rules.agents) == agent)[:, None] & (event >= 0)
    moved = state._replace(
        # Walls and agents stand on no item, so a cell that blocks may be cleared as well.
        items=jnp.where(_only(state, cell), 0, state.items),
        positions=jnp.where(acts, cell, state.positions),
    )
    return Acted(moved, jnp.asarray(rewards, jnp.float32)[event], event)


def _only(state: State, cell: Array) -> Bool[Array, "height width"]:
    """Where that cell is; compared rather than indexed, for a scatter walks through the lanes one by one."""
    height, width = state.items.shape
    return (jnp.arange(height) == cell[0])[:, None] & (jnp.arange(width) == cell[1])


def _end_turn(rules: Rules, state: State) -> Ended:
    turn = state.turn + 1
    return Ended(state._replace(turn=turn), jnp.bool_(False), turn == rules.max_turns)
