"""rules -> the treasure hunt of several agents under PettingZoo's parallel API."""

from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from quatrain.envs.adapters.simulation import RENDER_MODES, RESET_NEEDED, check_render_mode
from quatrain.envs.adapters.treasurehunt import AgentsSimulation, configure_rules
from quatrain.envs.treasurehunt.config import Env

# Value of each agent, by its name.
ByAgent = dict[str, Any]


class TreasureHuntParallelEnv(ParallelEnv[str, np.ndarray, int]):
    """Steps one world. Agents see the world at the start of a turn, then move one after another."""

    def __init__(self, rules: Env, render_mode: str | None = None) -> None:
        self.metadata = {
            "name": "quatrain_treasure_hunt_v0",
            "render_modes": list(RENDER_MODES),
            "render_fps": 8,
            "is_parallelizable": True,
        }
        self.possible_agents = [f"agent_{index}" for index in range(rules.agents)]
        self.agents: list[str] = []
        self.render_mode = check_render_mode(render_mode)
        self._simulation = AgentsSimulation(rules, 1)
        space = self._simulation.observation_space
        count = int(self._simulation.action_space.n)
        self.observation_spaces = {
            agent: gymnasium.spaces.Box(0, int(space.high.max()), space.shape, np.int8)
            for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: gymnasium.spaces.Discrete(count) for agent in self.possible_agents
        }
        self._seeded = False

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
        if seed is not None or not self._seeded:
            self._simulation.seed(int(np.random.default_rng(seed).integers(2**32)))
            self._seeded = True
        self._simulation.begin(np.ones(1, bool))
        self.agents = self.possible_agents[:]
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Computes one turn of all agents.

        Raises:
            ValueError: an agent has no action, or one that is not allowed.
            gymnasium.error.ResetNeeded: the episode has ended, or was never started.
        """
        if not self.agents:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        absent = [agent for agent in self.agents if agent not in actions]
        if absent:
            raise ValueError(f"step() needs an action of every agent; {absent[0]} has none.")
        row = np.array([[actions[agent] for agent in self.agents]])
        outcome = self._simulation.step(row)
        names = self.agents
        truncated = bool(outcome.truncated[0])
        rewards = [float(reward) for reward in outcome.rewards[0]]
        self.agents = [] if truncated else names
        return (
            self._observations(),
            dict(zip(names, rewards, strict=True)),
            dict.fromkeys(names, False),
            dict.fromkeys(names, truncated),
            {agent: {} for agent in names},
        )

    def render(self) -> np.ndarray | None:
        """Returns the picture of the world, or None without a render_mode."""
        return self._simulation.picture(0) if self.render_mode else None

    def close(self) -> None:
        """Holds nothing that needs closing."""

    def _observations(self) -> ByAgent:
        frames = self._simulation.observations[0]
        return {
            agent: frame.copy() for agent, frame in zip(self.possible_agents, frames, strict=True)
        }


def parallel_env(render_mode: str | None = None, **settings: Any) -> TreasureHuntParallelEnv:
    """Returns a treasure hunt of several agents; settings are keys of `iqn.env` in params.yaml.

    Raises:
        DataError: a setting is not allowed.
    """
    return TreasureHuntParallelEnv(configure_rules(settings), render_mode)
