"""Unregistered Gymnasium environments: a limit cycle seen by ten channels, and faulty ones."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

DT, NOISE = 0.1, 0.05
CHANNELS = np.random.default_rng(0).normal(size=(10, 2)) * 0.6
OFFSET = np.linspace(-1, 1, 10)


def velocity(x: np.ndarray) -> np.ndarray:
    """Computes x (1 - r²) + rot(x) for states [..., 2]."""
    turned = np.stack([-x[..., 1], x[..., 0]], -1)
    return x * (1 - (x**2).sum(-1, keepdims=True)) + turned


class Cycle(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ends a run after 200 transitions, or beyond a radius of 3."""

    observation_space = Box(-np.inf, np.inf, (10,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.x, self.age = self.np_random.uniform(-1, 1, 2), 0
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x = self.x + DT * (velocity(self.x) + action) + 0.03 * self.np_random.normal(size=2)
        self.age += 1
        return self.observe(), 0.0, bool(np.linalg.norm(self.x) > 3), self.age >= 200, {}

    def observe(self) -> np.ndarray:
        noise = NOISE * self.np_random.normal(size=10)
        return (CHANNELS @ self.x + OFFSET + noise).astype(np.float32)


class Choices(Cycle):
    action_space = Discrete(3)  # type: ignore[assignment]


class Dials(Cycle):
    action_space = Box(-1, 1, (2,), np.int8)  # type: ignore[assignment]
