"""config -> the pure functions of one treasure hunt: spawning, observing, moving"""

from functools import lru_cache, partial, reduce
from operator import or_
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int, Int8, Int16, Int32, Key

from quatrain.envs.treasurehunt import layouts
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.layouts import BARE, ITEMS, Map
from quatrain.envs.treasurehunt.turns import ActionResult, TurnEnd, World

# (dy, dx) of the actions up, down, left, right.
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

# Events of an action; k >= 1 is an item of entity k.
FLOOR, WALL, AGENT = 0, -1, -2

# Number folded in for start cells; no turn has it.
_STARTS = 2**32 - 1


class State(NamedTuple):
    """Holds one env. items: 0 none, k an item of entity k. positions: (y, x) of each agent."""

    items: Int8[Array, "height width"]
    positions: Int16[Array, "agent 2"]
    turn: Int32[Array, ""]
    episode: Int32[Array, ""]
    key: Key[Array, ""]


def walls(map: Map) -> Bool[np.ndarray, "height width"]:
    """Returns a mask of the walls."""
    return _symbols(map) == layouts.WALL


def spawnable(map: Map) -> Bool[np.ndarray, "height width"]:
    """Returns a mask of the cells where items may spawn."""
    return ~np.isin(_symbols(map), (layouts.WALL, BARE))


def items(map: Map) -> Int8[np.ndarray, "height width"]:
    """Returns the items at reset: 0 none, k an item of entity k (from 1)."""
    symbols = _symbols(map)
    return np.where(np.isin(symbols, list(ITEMS)), symbols, "0").astype(np.int8)


def _symbols(map: Map) -> np.ndarray:
    return np.array([list(row) for row in map.rows])


@lru_cache(maxsize=64)
def make_world(rules: Env) -> World:
    """Returns the world of these rules; equal rules give the same object, to compile only once."""
    return World(
        agents=rules.agents,
        frame_size=rules.frame_size,
        shuffled=rules.agent_order == "shuffled",
        reset=partial(_reset, rules),
        begin_turn=partial(_begin_turn, rules),
        observe=partial(_observe, rules),
        act=partial(_act, rules),
        end_turn=partial(_end_turn, rules),
    )


def spawn_items(
    rules: Env, key: Key[Array, ""], episode: Int[Array, ""], turn: Int[Array, ""]
) -> Int8[Array, "height width"]:
    """Returns the item that spawns in each cell at the start of a turn if the cell is free, else 0.

    Does not depend on actions. One uniform u per cell decides: an item spawns if u < p, and u/p
    selects its entity by weight.
    """
    may_spawn = spawnable(rules.map)
    noise_key = jax.random.fold_in(jax.random.fold_in(key, episode), turn)
    noise = jax.random.uniform(noise_key, may_spawn[1:-1, 1:-1].shape)
    weights = np.cumsum([entity.weight for entity in rules.entities])
    thresholds = rules.spawn_probability * (weights / weights[-1])
    exceeded = [(noise >= threshold).astype(jnp.int8) for threshold in thresholds[:-1]]
    spawned = jnp.where(noise < rules.spawn_probability, 1 + sum(exceeded), 0).astype(jnp.int8)
    return jnp.where(may_spawn, jnp.pad(spawned, 1), 0)


def targets(state: State, agent: Int[Array, ""]) -> Int16[Array, "action 2"]:
    """Returns the cell that each action leads to."""
    return state.positions[agent] + jnp.asarray(MOVES, jnp.int16)


def events(rules: Env, state: State, cells: Int16[Array, "*cell 2"]) -> Int8[Array, "*cell"]:
    """Returns the event of moving to each cell: WALL, AGENT, FLOOR or an item's entity."""
    y = cells[..., 0]
    x = cells[..., 1]
    occupied = (cells[..., None, :] == state.positions).all(-1).any(-1)
    blocked = jnp.asarray(walls(rules.map))[y, x]
    event = jnp.where(occupied, AGENT, state.items[y, x])
    return jnp.where(blocked, WALL, event).astype(jnp.int8)


def _reset(rules: Env, key: Array, episode: Array) -> State:
    start_key = jax.random.fold_in(jax.random.fold_in(key, episode), _STARTS)
    cells = jnp.asarray(layouts.starts(rules.map), jnp.int16)
    _, selected = lax.top_k(jax.random.uniform(start_key, (len(cells),)), rules.agents)
    return State(
        items=jnp.asarray(items(rules.map)),
        positions=cells[selected],
        turn=jnp.int32(0),
        episode=jnp.asarray(episode, jnp.int32),
        key=key,
    )


def _begin_turn(rules: Env, state: State) -> State:
    occupied = reduce(or_, [_cell_mask(state, position) for position in state.positions])
    spawned = spawn_items(rules, state.key, state.episode, state.turn)
    return state._replace(items=jnp.where((state.items == 0) & ~occupied, spawned, state.items))


def _observe(rules: Env, state: State, agent: Array) -> Int8[Array, " frame"]:
    radius = rules.vision_radius
    side = 2 * radius + 1
    y, x = state.positions[agent]
    static = _static_channels(rules)
    static_view = lax.dynamic_slice(static, (jnp.int16(0), y, x), (len(static), side, side))
    items_view = lax.dynamic_slice(jnp.pad(state.items, radius), (y, x), (side, side))
    masks = [items_view == entity for entity in range(1, len(rules.entities) + 1)]
    channels = [
        mask.reshape(1, -1).astype(jnp.int8)
        for mask in (*masks, _agents_in_view(rules, state, agent))
    ]
    return jnp.concatenate([static_view.reshape(len(static), -1), *channels]).reshape(-1)


def _static_channels(rules: Env) -> Int8[np.ndarray, "channel row column"]:
    """Returns the channels that never change, with a margin of vision_radius cells outside the map.

    With `sand`, floor lies beneath everything: a wall counts in both layers, a cell outside in one.
    """
    radius = rules.vision_radius
    is_wall = walls(rules.map)
    sand = rules.ground == "sand"
    wall = np.pad(is_wall.astype(np.int8) * (2 if sand else 1), radius)
    outside = np.pad(np.zeros(is_wall.shape, np.int8), radius, constant_values=1)
    ground = [np.pad(~is_wall, radius).astype(np.int8)] if sand else []
    return np.stack([np.zeros_like(wall), wall + outside, *ground])


def _agents_in_view(rules: Env, state: State, agent: Array) -> Bool[Array, " cell"]:
    """Returns the cells with an agent in the view of one agent, itself in the middle."""
    side = 2 * rules.vision_radius + 1
    offsets = state.positions - state.positions[agent] + rules.vision_radius
    in_view = ((offsets >= 0) & (offsets < side)).all(-1)
    cells = jnp.where(in_view, offsets[:, 0] * side + offsets[:, 1], -1)
    # One comparison per agent: a reduction over agents would run cell by cell.
    return reduce(or_, [jnp.arange(side**2) == cell for cell in cells])


def _act(rules: Env, state: State, agent: Array, action: Array) -> ActionResult:
    cell = targets(state, agent)[action]
    event = events(rules, state, cell)
    # Negative events index from the end.
    rewards = (
        0.0,
        *(entity.value for entity in rules.entities),
        rules.agent_value,
        rules.wall_value,
    )
    moves = (jnp.arange(rules.agents) == agent)[:, None] & (event >= 0)
    next_state = state._replace(
        # Walls and agents stand on no item, so a cell that blocks may be cleared as well.
        items=jnp.where(_cell_mask(state, cell), 0, state.items),
        positions=jnp.where(moves, cell, state.positions),
    )
    return ActionResult(next_state, jnp.asarray(rewards, jnp.float32)[event], event)


def _cell_mask(state: State, cell: Array) -> Bool[Array, "height width"]:
    """Returns a mask of one cell, by comparison: a scatter would run env by env."""
    height, width = state.items.shape
    return (jnp.arange(height) == cell[0])[:, None] & (jnp.arange(width) == cell[1])


def _end_turn(rules: Env, state: State) -> TurnEnd:
    turn = state.turn + 1
    return TurnEnd(
        state._replace(turn=turn), terminated=jnp.bool_(False), truncated=turn == rules.max_turns
    )
