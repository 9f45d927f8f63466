"""agents in a held-out world -> an animation of an episode"""

from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int8, Int16, UInt8

from quatrain.animation import Animation, digit, paint_discs, palette_of, with_bar
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt import world as worlds
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.network import greedy_policy
from quatrain.models.iqn.treasurehunt import Dataset, HeldOut, held_out_envs
from quatrain.plots import BLUE, ORANGE, RED

# Width of the picture in pixels, at most, and of a cell, at least.
WIDTH = 360
LEAST_CELL = 4
# Narrower cells have no room for an agent's number.
NUMBERED_CELL = 16
MILLISECONDS = 160
COLORS = ("0.97", "0.35", "0.88", ORANGE, BLUE, RED, "white")
FLOOR, WALL, GRID, GOOD, BAD, AGENT, TEXT = range(len(COLORS))


class Course(NamedTuple):
    """Holds a world before the first turn and after each turn. positions: (y, x)."""

    items: Int8[np.ndarray, "turn height width"]
    positions: Int16[np.ndarray, "turn agent 2"]


def animate(config: IqnConfig, state: State, dataset: Dataset) -> Animation:
    """Shows an episode of the first seed's agents, greedy, in the first held-out world."""
    first = HeldOut(*(column[:1] for column in dataset.held_out))
    params = jax.tree.map(itemgetter(0), evaluation_params(config, state))
    course = Course(*map(np.asarray, _play(config, params, first, jax.random.key(0))))
    rules = config.env
    frames = np.stack([draw_world(rules, *moment) for moment in zip(*course, strict=True)])
    return Animation(with_bar(frames, GRID, WALL), palette_of(COLORS), MILLISECONDS, "")


@partial(jax.jit, static_argnums=0)
def _play(
    config: IqnConfig, params: network.Params, held_out: HeldOut, key: Array
) -> tuple[Array, Array]:
    world = make_world(config.env)
    policy = greedy_policy(config, params)

    def one_turn(envs: turns.EnvStates, keys: Array) -> tuple[turns.EnvStates, tuple[Array, Array]]:
        after, _ = turns.play_turn(world, envs, policy, keys)
        return after, (after.state.items[0], after.state.positions[0])

    start = held_out_envs(config, held_out)
    keys = turns.turn_keys(world, key, jnp.int32(0), config.env.max_turns)
    _, (items, positions) = jax.lax.scan(one_turn, start, keys)
    return (
        jnp.concatenate([start.state.items, items]),
        jnp.concatenate([start.state.positions, positions]),
    )


def draw_world(
    rules: Env, items: Int8[np.ndarray, "height width"], positions: Int16[np.ndarray, "agent 2"]
) -> UInt8[np.ndarray, "row column"]:
    """Paints walls, items as diamonds by what they are worth, and agents as discs with numbers."""
    walls = worlds.walls(rules.map)
    cell = max(WIDTH // walls.shape[1], LEAST_CELL)
    frame = np.where(walls, WALL, FLOOR).astype(np.uint8).repeat(cell, 0).repeat(cell, 1)
    floor = frame == FLOOR
    frame[::cell][floor[::cell]] = GRID
    frame[:, ::cell][floor[:, ::cell]] = GRID
    for y, x in np.argwhere(items > 0).tolist():
        good = rules.entities[items[y, x] - 1].value > 0
        _paint_diamond(frame, y, x, cell, GOOD if good else BAD)
    for agent, position in enumerate(positions):
        _paint_agent(frame, agent, position, cell)
    return frame


def _paint_diamond(frame: np.ndarray, y: int, x: int, cell: int, color: int) -> None:
    distance = np.abs(np.arange(cell) - (cell - 1) / 2)
    inside = distance[:, None] + distance <= 0.35 * cell
    frame[y * cell : (y + 1) * cell, x * cell : (x + 1) * cell][inside] = color


def _paint_agent(
    frame: np.ndarray, agent: int, position: Int16[np.ndarray, " 2"], cell: int
) -> None:
    y, x = (int(place) * cell + (cell - 1) / 2 for place in position)
    paint_discs(frame, np.array([[x, y]]), 0.42 * cell, AGENT)
    if cell >= NUMBERED_CELL:
        pixels = digit(agent, cell // 12)
        top, left = round(y - pixels.shape[0] / 2 + 0.5), round(x - pixels.shape[1] / 2 + 0.5)
        frame[top : top + pixels.shape[0], left : left + pixels.shape[1]][pixels] = TEXT
