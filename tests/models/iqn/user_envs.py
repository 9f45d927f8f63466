"""Environments of a user whose values are known, and the section of a small iqn in them."""

from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from quatrain.validation import overlaid
from tests.models.iqn.sizes import SMALL

PAYOFFS = np.array([[1, 0, -1], [-1, 0, 1]])
"""Rewards by what is seen, tails or heads, and by what is done."""


class OneStep(gymnasium.Env):
    """Shows a side of a coin, and how far it rolled; pays once for an action, and ends."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(2))
        self.obs = np.array([*np.eye(2)[self.side], self.np_random.uniform(-1, 1)], np.float32)
        return self.obs, {}

    def step(self, action: Any) -> Any:
        return self.obs, float(PAYOFFS[self.side, action]), True, False, {}


class Corridor(gymnasium.Env):
    """Pays 1 for each step to the right; ends at random, or never."""

    observation_space = Box(0, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.place = float(self.np_random.random())
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        self.place += int(action)
        has_ended = self.ends and self.np_random.random() < 0.2
        return self._observed(), float(action), has_ended, False, {}

    def _observed(self) -> np.ndarray:
        return np.array([self.place], np.float32)


class Laps(gymnasium.Env):
    """Pays 1 for the last step of a lap, which ends there or, without an end, would go on."""

    action_space = Discrete(2)

    def __init__(self, length: int = 3, ends: str = "truncated") -> None:
        self.observation_space = Discrete(length)
        self.length = length
        self.ends = ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.place = 0
        return self.place, {}

    def step(self, _action: Any) -> Any:
        self.place = (self.place + 1) % self.length
        is_last = self.place == 0
        ends = {name: is_last and name == self.ends for name in ("terminated", "truncated")}
        return self.place, float(is_last), *ends.values(), {}


class Episode(NamedTuple):
    """Holds what happened in an episode; `obs` has its final observation, too."""

    obs: list[float]
    actions: list[int]
    rewards: list[float]
    ends: list[str]


class Diary(gymnasium.Env):
    """Shows a new number in each step, pays at random, ends at random, writes all down."""

    observation_space = Box(0, np.inf, (1,), np.float32)
    action_space = Discrete(3)
    episodes: ClassVar[list[Episode]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.now = Episode([], [], [], [])
        self.episodes.append(self.now)
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        terminated, truncated = self.np_random.random(2) < (0.1, 0.2)
        self.now.actions.append(int(action))
        self.now.rewards.append(float(self.np_random.integers(1, 9)))
        if terminated:
            self.now.ends.append("terminated")
        return self._observed(), self.now.rewards[-1], bool(terminated), bool(truncated), {}

    def _observed(self) -> np.ndarray:
        self.now.obs.append(float(self.np_random.integers(1, 2**24)))
        return np.array(self.now.obs[-1:], np.float32)


class Opposites:
    """Holds two agents that see the same coin: one is paid for naming it, the other for not."""

    possible_agents: ClassVar[list[str]] = ["same", "other"]

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.turn = 0
        return self._observed(), {}

    def step(self, actions: Any) -> Any:
        names = {agent: int(actions[agent]) == self.side for agent in self.agents}
        rewards = {"same": float(names["same"]), "other": float(not names["other"])}
        self.turn += 1
        terminated = dict.fromkeys(self.agents, self.turn == 4)
        return self._observed(), rewards, terminated, dict.fromkeys(self.agents, False), {}

    def _observed(self) -> dict[str, int]:
        self.side = int(self.random.integers(2))
        return dict.fromkeys(self.agents, self.side)

    def observation_space(self, _agent: str) -> Any:
        return Discrete(2)

    def action_space(self, _agent: str) -> Any:
        return Discrete(2)

    def close(self) -> None: ...


def section(name: str, kind: str = "gymnasium", **kwargs: Any) -> dict[str, Any]:
    """Returns the section iqn of a small learner in one of these environments; it has the other
    keys of params.yaml.
    """
    env = {"kind": kind, "id": None, "import": f"{__name__}:{name}", "kwargs": kwargs}
    collect = {"turns": 16, "held_out_worlds": 24, "observation_norm": "prefill"}
    train = {"turns": 48, "turns_per_cycle": 8, "capacity": 256, "learning_rate": 5e-3}
    train |= {"record_every": 20, "loss": {"n_step": 2}}
    train |= {"acting": {"quantiles": 8, "epsilon": {"end": 0.1}}}
    return {
        "seeds": 1,
        "env": env | {"max_episode_steps": 6, "wrappers": [], "vectorization": "sync", "worlds": 4},
        "collect": collect,
        "network": SMALL["network"],
        "train": overlaid(SMALL["train"], train),
        "evaluate": {"bootstrap_samples": 200, "budget": 0.5},
    }
