"""map, settings -> a grid world under the Gymnasium API; its steps are lookups in tables."""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Bool, UInt8

from quatrain.envs.adapters.settings import configure
from quatrain.envs.adapters.simulation import Outcome, Simulation, check_discrete
from quatrain.envs.drawing import draw_grid
from quatrain.envs.grid.config import Env
from quatrain.envs.grid.dynamics import draw_frequencies, make_grid, observe
from quatrain.envs.grid.layouts import MOVES
from quatrain.section import InputFile

NAME = "quatrain/Grid-v0"


class GridSimulation(Simulation):
    """Moves through the free cells of a map: up, right, down, left; a blocked move stays.

    Entering the goal G gives reward 1 and terminates; a map without G gives no reward.
    `info["state"]` is the index of the cell, in row-major order of the free cells.
    """

    def __init__(self, env: Env, num_envs: int) -> None:
        self._grid = make_grid(env.map)
        self._uniform = env.start == "uniform"
        self._inputs = observe(env, self._grid, draw_frequencies(env, seed=0))
        low, high = float(self._inputs.min()), float(self._inputs.max())
        space = Box(low, high, self._inputs.shape[1:], np.float32)
        super().__init__(num_envs, space, Discrete(len(MOVES)))
        self._states = np.zeros(num_envs, np.int64)

    def seed(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        goal = int(self._grid.goal)
        starts = self._rng.integers(len(self._inputs) - (goal >= 0), size=self.num_envs)
        starts += (goal >= 0) & (starts >= goal)  # skips the goal
        if not self._uniform and self._grid.start >= 0:
            starts[:] = self._grid.start
        self._states = np.where(mask, starts, self._states)
        self.observations = self._inputs[self._states]

    def step(self, actions: np.ndarray) -> Outcome:
        check_discrete(actions, len(MOVES))
        self._states = np.asarray(self._grid.next_state)[self._states, actions].astype(np.int64)
        self.observations = self._inputs[self._states]
        terminated = self._states == int(self._grid.goal)
        return Outcome(terminated.astype(np.float64), terminated, np.zeros_like(terminated))

    def info(self) -> dict[str, np.ndarray]:
        return {"state": self._states}

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws walls, start, goal, one-way doors (bars that the way back is closed by), agent."""
        coords = np.asarray(self._grid.coords)
        start, goal = (
            coords[state] if state >= 0 else None for state in (self._grid.start, self._grid.goal)
        )
        agent = coords[self._states[env]]
        return draw_grid(np.asarray(self._grid.walls), start, goal, self._doors(), agent)

    def _doors(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns each cell and move that leads to a free cell, and is blocked."""
        coords = np.asarray(self._grid.coords)
        free = {tuple(cell) for cell in coords.tolist()}
        blocked = np.asarray(self._grid.next_state) == np.arange(len(coords))[:, None]
        moves = [(coords[state], np.array(MOVES[action])) for state, action in np.argwhere(blocked)]
        return [(cell, move) for cell, move in moves if tuple((cell + move).tolist()) in free]


def simulate(num_envs: int, **settings: Any) -> GridSimulation:
    """Returns grid worlds; settings are keys of `allo.env` in params.yaml.

    `layout` is a name of the catalogue, or a map as text with several lines.

    Raises:
        ConfigError: a setting is not allowed.
    """
    layout = settings.get("layout")
    if isinstance(layout, str) and "\n" in layout:
        settings["layout"] = InputFile(name="layout", text=layout)
    return GridSimulation(configure(NAME, Env, "allo", settings), num_envs)
