"""Environments of a user whose values are known, and the section of a small learner in them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Signs(gymnasium.Env):
    """Shows a sign, and how large it is; pays for naming it, and never ends."""

    observation_space = Box(-3, 3, (2,), np.float32)
    action_space: gymnasium.Space = Discrete(6, start=1)

    def __init__(self, pays: float = 1.0) -> None:
        self.pays = pays

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        paid = self.pays * self.paid(action)
        return self._observed(), paid, False, False, {}

    def paid(self, action: Any) -> float:
        return float(action == (6 if self.sign > 0 else 1))

    def _observed(self) -> np.ndarray:
        self.sign = self.np_random.choice([-1, 1])
        return np.array([self.sign, self.np_random.uniform(-3, 3)], np.float32)


class Pointer(Signs):
    """Pays for a vector that is near the one that belongs to the sign."""

    action_space = Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32))

    def paid(self, action: Any) -> float:
        goal = np.array([0.5 * self.sign, 2 + self.sign])
        return float(-np.abs((action - goal) / (1, 2)).sum())


class Dial(Signs):
    """Pays for the lowest integers of a vector, or the highest, as the sign says."""

    action_space = Box(np.array([0, -2], np.int8), np.array([3, 2], np.int8), dtype=np.int8)

    def paid(self, action: Any) -> float:
        assert self.action_space.contains(action)
        goal = self.action_space.low if self.sign < 0 else self.action_space.high
        return float((action == goal).mean())


class Steps(Signs):
    """Pays 1 in each step, and ends after the third, or never."""

    def __init__(self, ends: bool = True) -> None:
        self.ends = ends

    def reset(self, **kwargs: Any) -> Any:
        self.steps = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.steps += 1
        return self._observed(), 1.0, self.ends and self.steps == 3, False, {}

    def _observed(self) -> np.ndarray:
        self.np_random.random()
        return np.array([self.steps if self.ends else 0, 0], np.float32)


class Stopwatch(Signs):
    """Shows a number of the episode plus its steps, and truncates after two to four."""

    observation_space = Box(0, 10_000, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        gymnasium.Env.reset(self, seed=seed)
        self.shown = 10 * int(self.np_random.integers(1000))
        self.left = int(self.np_random.integers(2, 5))
        return np.float32([self.shown]), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.shown += 1
        self.left -= 1
        return np.float32([self.shown]), 0.0, False, self.left == 0, {}


class Unbounded(Signs):
    """Has an action of which a number cannot be chosen."""

    action_space = Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32))


def section(name: str, **kwargs: Any) -> dict[str, Any]:
    """Returns the section actor_critic of a small learner in one of these environments, as changes
    to params.yaml.
    """
    return {
        "seeds": 1,
        "env": {
            "kind": "gymnasium",
            "id": None,
            "import": f"{__name__}:{name}",
            "kwargs": kwargs,
            "max_episode_steps": 5,
            "wrappers": [],
            "vectorization": "sync",
        },
        "collect": {
            "transitions": 64,
            "constant_search": 6,
            "validation_episodes": 6,
            "held_out_episodes": 40,
        },
        "network": {"observation_scale": "running", "d": 16, "layers": 1},
        "train": {
            "num_envs": 7,
            "horizon": 16,
            "transitions": 7 * 16 * 8,
            "minibatch_size": 32,
            "discount": 0.5,
            "discount_end": 0.5,
            "gae_lambda": 0.9,
            "target_kl": 0.2,
            "learning_rate": 0.02,
            "entropy_start": 0.0,
            "entropy_end": 0.0,
            "record_every": 2,
            "evaluate_every": 4,
        },
        "evaluate": {"bootstrap_samples": 200, "budget": 0.5},
    }
