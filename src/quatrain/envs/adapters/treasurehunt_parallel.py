"""rules -> the treasure hunt of several agents under PettingZoo's parallel API."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from quatrain.envs.adapters.simulation import SimulationBase
from quatrain.envs.adapters.treasurehunt import AgentsSimulation, configure_rules
from quatrain.envs.treasurehunt.config import Env

# Value of each agent, by its name.
ByAgent = dict[str, Any]


class TreasureHuntParallelEnv(SimulationBase, ParallelEnv[str, np.ndarray, int]):
    """Steps one world. Agents see the world at the start of a turn, then move one after another."""

    LARGEST_SEED = 2**32

    def __init__(self, rules: Env, render_mode: str | None = None) -> None:
        simulation = AgentsSimulation(rules, 1)
        super().__init__(simulation, render_mode)
        self.metadata |= {"name": "quatrain_treasure_hunt_v0", "is_parallelizable": True}
        self.possible_agents = [f"agent_{index}" for index in range(rules.agents)]
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = (
            {agent: deepcopy(space) for agent in self.possible_agents}
            for space in (simulation.observation_space, simulation.action_space)
        )

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Returns the space of an agent: channels, rows and columns of what it sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Returns the space of an agent: up, down, left, right."""
        return self.action_spaces[agent]

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002  PettingZoo passes some to all
    ) -> tuple[ByAgent, ByAgent]:
        """Starts an episode; without a seed the next one, or one at random; ignores options."""
        self.np_random = np.random.default_rng(seed)
        self._begin(seed)
        self.agents = self.possible_agents[:]
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Computes one turn of all agents.

        Raises:
            ValueError: an agent has no action, or one that is not allowed.
            gymnasium.error.ResetNeeded: the episode has ended, or was never started.
        """
        self._check_running()
        absent = [agent for agent in self.agents if agent not in actions]
        if absent:
            raise ValueError(f"step() needs an action of every agent; {absent[0]} has none.")
        row = np.array([[actions[agent] for agent in self.agents]])
        rewards, _, (truncated,) = self._simulation.step(row)
        names = self.agents
        self._running = not truncated
        self.agents = names if self._running else []
        return (
            self._observations(),
            dict(zip(names, rewards[0].tolist(), strict=True)),
            dict.fromkeys(names, False),
            dict.fromkeys(names, not self._running),
            {agent: {} for agent in names},
        )

    def render(self) -> np.ndarray | None:
        """Returns the picture of the world, or None without a render_mode."""
        return self._picture(0)

    def close(self) -> None:
        """Holds nothing that needs closing."""

    def _observations(self) -> ByAgent:
        return dict(zip(self.possible_agents, self._observed(0), strict=True))


def parallel_env(render_mode: str | None = None, **settings: Any) -> TreasureHuntParallelEnv:
    """Returns a treasure hunt of several agents; settings are keys of `iqn.env` in params.yaml.

    Raises:
        DataError: a setting is not allowed.
    """
    return TreasureHuntParallelEnv(configure_rules(settings), render_mode)
