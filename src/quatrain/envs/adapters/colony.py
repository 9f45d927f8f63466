"""Rules, plates -> colonies under the Gymnasium API, numpy in and out, for use with any library."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, Space
from jaxtyping import Bool, UInt8
from torch import Generator

from quatrain.envs.adapters.settings import configure, default_params
from quatrain.envs.adapters.simulation import Outcome, Simulation
from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES, RUNNING, TIMEOUT, Env
from quatrain.envs.colony.dynamics import Colonies, advance, make_world
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.plates import (
    TRAINING,
    Plates,
    fixed_plate,
    sample_plates,
    two_ridges_plate,
    user_plate,
)
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.world import check_actions, colonies_at, restart, select
from quatrain.envs.drawing import draw_colony
from quatrain.errors import DataError

SINGLE_PLATES: dict[str, Callable[[int], Plates]] = {
    "fixed": fixed_plate,
    "two_ridges": two_ridges_plate,
}
NAME = "quatrain/Colony-v0"


class ColonySimulation(Simulation):
    """Grows colonies; an observation has node, graph, parent and mask of `features.Observation`.

    With `graph_only` it is that of the whole colony, which takes a fraction of the time. `info` has
    of the running episode: reason (a code of rules.py), n (cells, also beyond max_nodes),
    episode_return, episode_length, components_sum (unweighted).
    """

    def __init__(self, rules: Env, plates: Plates, num_envs: int, graph_only: bool = False) -> None:
        self._graph_only = graph_only
        spaces = _observation_spaces(rules)
        if graph_only:
            spaces = {"graph": spaces["graph"]}
        self._dtypes = {name: space.dtype for name, space in spaces.items()}
        low, high = np.array(rules.bounds, np.float32).T
        super().__init__(num_envs, Dict(spaces), Box(low, high, dtype=np.float32))
        self._world = make_world(rules, plates)
        self._generator = Generator(torch.get_default_device())
        zero = torch.zeros(num_envs, dtype=torch.int64)
        self._colonies = colonies_at(torch.zeros(num_envs, rules.max_nodes, 2), zero, zero)
        self._reason = zero.clone()
        self._sums = torch.zeros(num_envs, len(rules.reward_weights))
        self._returns = torch.zeros(num_envs)
        self.observations = self._observe(self._colonies)

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        ended = torch.tensor(mask, device=self._reason.device)
        self._colonies = restart(self._world, self._colonies, ended, self._generator)
        for values in (self._reason, self._sums, self._returns):
            values[ended] = 0
        first = self._observe(select(self._colonies, ended.nonzero()[:, 0]))
        for name, observed in self.observations.items():
            observed[mask] = first[name]

    def step(self, actions: np.ndarray) -> Outcome:
        action = torch.tensor(np.asarray(actions, np.float32))
        check_actions(self._world.rules, action)
        transition = advance(self._world, self._colonies, action)
        rewards = components(self._world, transition)
        reward = rewards @ self._world.weights
        self._colonies, self._reason = transition.after, transition.reason
        self._sums = self._sums + rewards
        self._returns = self._returns + reward
        self.observations = self._observe(self._colonies)
        truncated = self._reason == TIMEOUT
        terminated = (self._reason != RUNNING) & ~truncated
        return Outcome(*(each.numpy(force=True) for each in (reward, terminated, truncated)))

    def info(self) -> dict[str, np.ndarray]:
        values = {
            "reason": self._reason,
            "n": self._colonies.n,
            "episode_return": self._returns,
            "episode_length": self._colonies.t,
            "components_sum": self._sums,
        }
        return {name: value.numpy(force=True) for name, value in values.items()}

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws the plate, the goal, and the cells that have a slot."""
        colonies, rules = self._colonies, self._world.rules
        stiffness = self._world.intensity[int(colonies.substrate[env])].numpy(force=True)
        cells = slice(int(colonies.n[env]))
        pos, parent, new = (
            column[env, cells].numpy(force=True)
            for column in (colonies.pos, colonies.parent, colonies.new)
        )
        return draw_colony(stiffness, rules.height, rules.goal, pos, parent, new)

    def _observe(self, colonies: Colonies) -> dict[str, np.ndarray]:
        cells = self._world.rules.max_nodes
        observation = observe(self._world, colonies, cells, self._graph_only)
        return {
            name: np.array(getattr(observation, name).numpy(force=True), dtype)
            for name, dtype in self._dtypes.items()
        }


def simulate(
    num_envs: int,
    graph_only: bool = False,
    plates: str | np.ndarray | None = None,
    plate_count: int | None = None,
    plate_seed: int = 0,
    **settings: Any,
) -> ColonySimulation:
    """Returns colonies; settings are keys of `actor_critic.env` in params.yaml.

    plates: default_law, fixed, two_ridges, or the stiffness at each pixel; plate_count: how many
    of default_law, one of which each episode draws. By default those of `actor_critic.collect`.
    With `graph_only` the observation is that of the whole colony.

    Raises:
        ConfigError: a setting is not allowed.
        DataError: there are no such plates.
    """
    env = configure(NAME, Env, "actor_critic", settings)
    defaults = default_params()["actor_critic"]["collect"]
    count = defaults["n_train"] if plate_count is None else plate_count
    choice = defaults["plates"] if plates is None else plates
    drawn = _plates(choice, count, env.width, plate_seed)
    return ColonySimulation(env, drawn, num_envs, graph_only)


def _plates(choice: str | np.ndarray, count: int, width: int, seed: int) -> Plates:
    if isinstance(choice, np.ndarray):
        return _measured(choice, width)
    if choice == "default_law":
        if not isinstance(count, int) or count < 1:
            raise DataError(f"{NAME}: plate_count = {count!r}; give a whole number from 1")
        return sample_plates(TRAINING, count, width, np.random.default_rng(seed))
    if not isinstance(choice, str) or choice not in SINGLE_PLATES:
        names = ", ".join(("default_law", *SINGLE_PLATES))
        raise DataError(f"{NAME}: plates = {choice!r}; known: {names}, or an array")
    return SINGLE_PLATES[choice](width)


def _observation_spaces(rules: Env) -> dict[str, Space[Any]]:
    cells = rules.max_nodes
    return {
        "node": Box(-np.inf, np.inf, (cells, NODE_FEATURES[rules.features]), np.float32),
        "graph": Box(-np.inf, np.inf, (GRAPH_FEATURES[rules.features],), np.float32),
        "parent": Box(-1, cells - 1, (cells,), np.int64),
        "mask": MultiBinary(cells),
    }


def _measured(intensity: np.ndarray, width: int) -> Plates:
    if intensity.shape != (width,) or not (np.isfinite(intensity) & (intensity > 0)).all():
        raise DataError(
            f"{NAME}: plates has shape {intensity.shape}; give {width} positive numbers, the "
            "stiffness at each pixel of the width"
        )
    return user_plate(intensity.astype(np.float32))
