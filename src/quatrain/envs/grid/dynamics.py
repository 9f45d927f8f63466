"""Layout -> tables of a grid world (transitions, observations); a pure reset and step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Float32, Int, Int32, Key

from quatrain.envs.grid.config import Env
from quatrain.envs.grid.layouts import MOVES, Cell, Layout, reverse

AnyArray = np.ndarray | Array


class Grid(NamedTuple):
    """Holds the world as tables; a pytree, so it may be an argument of a compiled program.

    States are the free cells in row-major order. coords: (x, y) of each state, y grows downward.
    next_state: one column per action up, right, down, left; a blocked move stays. start, goal: a
    state, or -1 for none.
    """

    walls: Bool[AnyArray, "height width"]
    coords: Int32[AnyArray, "states 2"]
    next_state: Int32[AnyArray, "states 4"]
    start: Int32[AnyArray, ""]
    goal: Int32[AnyArray, ""]


class Transition(NamedTuple):
    """The result of one step; at most one of the two flags is set."""

    next_state: Int32[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


def make_grid(layout: Layout) -> Grid:
    """Returns the tables of a map, as NumPy arrays."""
    free = ~layout.walls
    coords = np.argwhere(free)[:, ::-1].astype(np.int32)
    states = np.arange(len(coords), dtype=np.int32)
    # The state at (y+1, x+1); -1 at walls and, thanks to the frame, beyond the border.
    framed = np.full(np.add(free.shape, 2), -1, np.int32)
    framed[1:-1, 1:-1][free] = states
    target_xy = coords[:, None] + np.array(MOVES, np.int32)
    target = framed[target_xy[..., 1] + 1, target_xy[..., 0] + 1]
    next_state = np.where(target >= 0, target, states[:, None])
    for x, y, action in layout.doors:
        behind = next_state[framed[y + 1, x + 1], action]
        next_state[behind, reverse(action)] = behind
    return Grid(
        walls=layout.walls,
        coords=coords,
        next_state=next_state,
        start=_state_at(layout.start, framed),
        goal=_state_at(layout.goal, framed),
    )


def _state_at(cell: Cell | None, framed: np.ndarray) -> Int32[np.ndarray, ""]:
    if cell is None:
        return np.asarray(-1, np.int32)
    x, y = cell
    return np.asarray(framed[y + 1, x + 1], np.int32)


def reset(key: Key[Array, ""], grid: Grid, uniform: bool) -> Int32[Array, ""]:
    """Draws a first state, uniform over all but the goal; or the map's start, if it has one."""
    has_goal = grid.goal >= 0
    drawn = jax.random.randint(key, (), 0, len(grid.coords) - has_goal, jnp.int32)
    state = drawn + (has_goal & (drawn >= grid.goal))  # skips the goal
    return state if uniform else jnp.where(grid.start >= 0, grid.start, state)


def step(
    grid: Grid,
    state: Int[Array, ""],
    elapsed: Int[Array, ""],
    action: Int[Array, ""],
    max_episode_steps: int,
) -> Transition:
    """Moves one environment; `elapsed` counts the steps of its trajectory before this one.

    terminated: the step entered the goal. truncated: it was the last of the limit and did not.
    """
    next_state = jnp.asarray(grid.next_state)[state, action]
    terminated = next_state == grid.goal
    truncated = ~terminated & (elapsed + 1 >= max_episode_steps)
    return Transition(next_state, terminated, truncated)


def draw_frequencies(env: Env, seed: int) -> Float32[np.ndarray, "count 2"]:
    """Draws B ~ N(0, scale²) of random Fourier features; without `fourier` there are none."""
    scale, count = (env.fourier.scale, env.fourier.count) if env.fourier else (0.0, 0)
    return np.random.default_rng(seed).normal(0.0, scale, (count, 2)).astype(np.float32)


def observe(
    env: Env, grid: Grid, frequencies: Float32[np.ndarray, "count 2"]
) -> Float32[np.ndarray, "states inputs"]:
    """Computes the inputs of each state: two coordinates, or with `fourier` 2 + 2*count,
    [x, y, sin(B xy), cos(B xy)] of the centred ones.

    Source: Tancik et al. 2020, 'Fourier Features Let Networks Learn High Frequency Functions'.
    """
    if env.fourier is None:
        return COORDINATES[env.observation](grid).astype(np.float32)
    xy = _centred(grid)
    phase = xy @ frequencies.T.astype(np.float64)
    return np.hstack([xy, np.sin(phase), np.cos(phase)]).astype(np.float32)


def _centred(grid: Grid) -> Float[np.ndarray, "states 2"]:
    """Returns coordinates symmetric about the middle of the map, within (-1, 1)."""
    width_height = np.array(grid.walls.shape[::-1])
    return (2 * np.asarray(grid.coords) + 1 - width_height) / width_height.max()


def _corner(grid: Grid) -> Float[np.ndarray, "states 2"]:
    """Returns cell corners instead of middles, as in the original program: not symmetric."""
    width_height = np.array(grid.walls.shape[::-1])
    return (np.asarray(grid.coords) - width_height / 2) / (width_height.max() / 2)


def _paper(grid: Grid) -> Float[np.ndarray, "states 2"]:
    """Returns (y, x), as in the paper's code."""
    return np.asarray(grid.coords)[:, ::-1] / np.array(grid.walls.shape) - 0.5


COORDINATES: dict[str, Callable[[Grid], np.ndarray]] = {
    "centred": _centred,
    "corner": _corner,
    "paper": _paper,
}
