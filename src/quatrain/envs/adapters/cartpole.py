"""settings -> a pole on a cart on a circular track, under the Gymnasium API."""

import math
from typing import Any, get_args

import numpy as np
import torch
from gymnasium.spaces import Box
from jaxtyping import Bool, UInt8
from torch import Generator

from quatrain.envs import cartpole
from quatrain.envs.adapters import rendering
from quatrain.envs.adapters.simulation import Outcome, SimulationEnv, SimulationVectorEnv
from quatrain.envs.cartpole import ObservationKind
from quatrain.errors import DataError

NAME = "quatrain/CartPole-v0"
CHANNELS = {"full": 6, "partial": 4, "angles": 2}
# Radians: 12 degrees, as in the classic task.
FALL_ANGLE = math.pi / 15
HEIGHT = 240
WIDTH = 600


class CartPoleSimulation:
    """Pushes the cart with an action in -1..1; reward 1 per step until the pole has fallen.

    The track has no ends. `info["state"]` is phi, phi', theta, theta'.
    """

    frames_per_second = 50

    def __init__(
        self,
        num_envs: int,
        observation: str = "full",
        fall_angle: float = FALL_ANGLE,
    ) -> None:
        if observation not in get_args(ObservationKind):
            names = ", ".join(get_args(ObservationKind))
            raise DataError(f"{NAME}: observation = {observation!r} is unknown; known: {names}")
        if not 0 < fall_angle <= math.pi:
            raise DataError(f"{NAME}: fall_angle = {fall_angle!r}: give radians in (0, π]")
        self.num_envs = num_envs
        self.observation_space = Box(-np.inf, np.inf, (CHANNELS[observation],), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self._kind: Any = observation
        self._fall_angle = fall_angle
        self._generator = Generator()
        self._states = torch.zeros(num_envs, 4)

    @property
    def observations(self) -> np.ndarray:
        return cartpole.observe(self._states, self._kind).numpy()

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        drawn = cartpole.reset(self.num_envs, self._generator)
        self._states = torch.where(torch.tensor(mask)[:, None], drawn, self._states)

    def step(self, actions: np.ndarray) -> Outcome:
        if not np.isfinite(actions).all():
            raise ValueError(f"Actions must be finite, got {actions.tolist()}.")
        self._states = cartpole.step(self._states, torch.tensor(np.asarray(actions, np.float32)))
        fallen = (self._states[:, 2].abs() > self._fall_angle).numpy()
        return Outcome(np.ones(self.num_envs), fallen, np.zeros_like(fallen))

    def info(self) -> dict[str, np.ndarray]:
        return {"state": self._states.numpy()}

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws the track unrolled: a cart that leaves at one side returns at the other."""
        phi, _, theta, _ = self._states[env].tolist()
        picture = rendering.blank(HEIGHT, WIDTH)
        ground = 0.75 * HEIGHT
        metre = WIDTH / (2 * math.pi * cartpole.RADIUS)
        x = (phi / (2 * math.pi) + 0.5) % 1.0 * WIDTH
        rendering.line(picture, (0, ground), (WIDTH, ground), rendering.FAINT, 2.0)
        for copy in (x - WIDTH, x, x + WIDTH):
            self._draw_cart(picture, copy, ground, theta, metre)
        return picture

    def _draw_cart(
        self, picture: np.ndarray, x: float, ground: float, theta: float, metre: float
    ) -> None:
        for offset in (-22, 22):
            rendering.disc(picture, x + offset, ground - 5, 6, rendering.INK)
        rendering.line(picture, (x - 26, ground - 20), (x + 26, ground - 20), rendering.WALL, 22)
        length = cartpole.LENGTH * metre
        hinge = (x, ground - 30)
        tip = (x + length * math.sin(theta), ground - 30 - length * math.cos(theta))
        rendering.line(picture, hinge, tip, rendering.AGENTS[1], 8)
        rendering.disc(picture, *hinge, 5, rendering.INK)


def make_env(render_mode: str | None = None, **settings: Any) -> SimulationEnv:
    """Returns one cart; settings: observation (full, partial, angles), fall_angle (radians).

    Raises:
        DataError: a setting is not allowed.
    """
    return SimulationEnv(_simulation(1, settings), render_mode)


def make_vector_env(
    num_envs: int,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    **settings: Any,
) -> SimulationVectorEnv:
    """Returns carts with the settings of `make_env`, which step together."""
    return SimulationVectorEnv(_simulation(num_envs, settings), render_mode, max_episode_steps)


def _simulation(num_envs: int, settings: dict[str, Any]) -> CartPoleSimulation:
    unknown = sorted(settings.keys() - {"observation", "fall_angle"})
    if unknown:
        raise DataError(f"{NAME}: unknown setting {unknown[0]!r}; known: observation, fall_angle")
    return CartPoleSimulation(num_envs, **settings)
