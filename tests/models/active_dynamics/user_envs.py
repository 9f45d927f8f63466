"""Unregistered Gymnasium environments: a cart-pole that swings up, faulty ones, and true fields."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

PENDULUM_DT = 0.05


class CartPole(gymnasium.Env[np.ndarray, np.ndarray]):
    """Shows place, speed, cosine, sine and speed of the angle; the pole hangs when it begins."""

    observation_space = Box(-np.inf, np.inf, (5,), np.float32)
    action_space = Box(-10, 10, (1,), np.float32)
    dt = 0.04

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.state = np.array([0, 0, np.pi, 0]) + 0.1 * self.np_random.normal(size=4)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        for _ in range(4):
            self.state = self.state + self.dt / 4 * acceleration(self.state, float(action[0]))
        return self.observe(), 0.0, bool(abs(self.state[0]) > 4), False, {}

    def observe(self) -> np.ndarray:
        place, speed, angle, turn = self.state
        return np.array([place, speed, np.cos(angle), np.sin(angle), turn], np.float32)


def acceleration(state: np.ndarray, force: float) -> np.ndarray:
    """Computes dx/dt of a cart of 1 kg with a pole of .1 kg and 1 m."""
    _, speed, angle, turn = state
    sine, cosine = np.sin(angle), np.cos(angle)
    pushed = (force + 0.05 * turn**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    return np.array([speed, pushed - 0.05 * turning * cosine / 1.1 - 0.1 * speed, turn, turning])


def cart_pole_field(y: np.ndarray) -> np.ndarray:
    """Returns the simulator's own (y' - y) / dt without force."""
    env = CartPole()
    velocities = []
    for place, speed, cosine, sine, turn in y:
        env.state = np.array([place, speed, np.arctan2(sine, cosine), turn])
        before = env.observe().astype(float)
        velocities.append((env.step(np.zeros(1))[0] - before) / env.dt)
    return np.array(velocities)


def pendulum_field(y: np.ndarray) -> np.ndarray:
    """Returns Pendulum-v1's own (y' - y) / dt without torque."""
    angle, turn = np.arctan2(y[:, 1], y[:, 0]), y[:, 2]
    next_turn = np.clip(turn + 15 * np.sin(angle) * PENDULUM_DT, -8, 8)
    following = angle + next_turn * PENDULUM_DT
    return (np.stack([np.cos(following), np.sin(following), next_turn], 1) - y) / PENDULUM_DT


def flat_field(y: np.ndarray) -> np.ndarray:
    """Returns no velocities."""
    return y[:, 0]


class Timeless(CartPole):
    dt = None  # type: ignore[assignment]


class Choices(CartPole):
    action_space = Discrete(3)  # type: ignore[assignment]


class Pixels(CartPole):
    observation_space = Box(0, 255, (8, 9, 3), np.uint8)

    def observe(self) -> np.ndarray:
        return np.zeros((8, 9, 3), np.uint8)
