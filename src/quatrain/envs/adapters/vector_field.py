"""World -> a vector field with actions under the Gymnasium API, numpy in and out."""

from collections import deque
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from jaxtyping import Bool, Float, UInt8
from torch import Generator

from quatrain.envs.adapters.settings import configure
from quatrain.envs.adapters.simulation import Outcome, Simulation
from quatrain.envs.drawing import draw_plane
from quatrain.envs.vector_field.config import Env
from quatrain.envs.vector_field.fields import make_field
from quatrain.envs.vector_field.world import (
    EnvState,
    FieldSystem,
    World,
    check_actions,
    check_step,
    draw_emission,
    make_world,
)

NAME = "quatrain/VectorField-v0"
# Of a picture: arrows per axis, the longest as a share of their distance, and states of a trail.
ARROWS = 21
ARROW_LENGTH = 0.8
TRAIL = 100


class VectorFieldSimulation(Simulation):
    """Moves states along a field; episodes are truncated but never terminate; the reward is 0.

    `info["state"]` is the state of the observation. Actions are clamped to the box.
    """

    frames_per_second = 20

    def __init__(self, world: World, num_envs: int) -> None:
        env, channels = world.env, len(world.emission.weight)
        actions = Box(-env.action_bound, env.action_bound, (env.action_size,), np.float32)
        super().__init__(num_envs, Box(-np.inf, np.inf, (channels,), np.float32), actions)
        self._world = world
        self._generators = [Generator(torch.get_default_device()) for _ in range(2)]
        noise, counts = ([each] for each in self._generators)
        unseen = torch.zeros(num_envs, channels)
        state = EnvState(torch.zeros(num_envs, env.d), torch.zeros(num_envs, dtype=torch.int64))
        self._system = FieldSystem(world, state, unseen, noise, counts)
        self.observations = unseen.numpy(force=True)
        self._trail: deque[np.ndarray] = deque(maxlen=TRAIL)

    def seed(self, seed: int) -> None:
        seeds = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        for generator, word in zip(self._generators, seeds, strict=True):
            generator.manual_seed(int(word >> np.uint64(1)))

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        running = self._system.state
        self._system.reset()
        here = torch.tensor(mask, device=running.age.device)
        self._system.state = EnvState(
            x=torch.where(here[:, None], self._system.x, running.x),
            age=torch.where(here, 0, running.age),
        )
        self.observations = np.where(
            mask[:, None], self._system.observation.numpy(force=True), self.observations
        )
        for positions in self._trail:
            positions[mask] = np.nan
        self._trail.append(self._positions())

    def step(self, actions: np.ndarray) -> Outcome:
        values = torch.tensor(np.asarray(actions, np.float32))
        check_actions(values)
        age = self._system.state.age
        transition = self._system.step(values)
        self._system.state = EnvState(transition.final_x, age + 1)
        self.observations = transition.observation.numpy(force=True)
        self._trail.append(self._positions())
        truncated = transition.truncated.numpy(force=True)
        return Outcome(np.zeros(self.num_envs), np.zeros_like(truncated), truncated)

    def info(self) -> dict[str, np.ndarray]:
        return {"state": self._positions()}

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws the plane of the first two dimensions, the field if there are no others, and the
        last states.
        """
        trail = [positions[env] for positions in self._trail]
        return draw_plane(self._world.env.escape_radius, trail, self._arrows)

    def _positions(self) -> np.ndarray:
        return self._system.x.numpy(force=True).copy()

    @cached_property
    def _arrows(self) -> Float[np.ndarray, "arrow 2 2"]:
        """Returns start and end of arrows along the field; their length is a root of the speed."""
        if self._world.env.d != 2:
            return np.zeros((0, 2, 2))
        radius = self._world.env.escape_radius
        gap = 2 * radius / ARROWS
        axis = torch.linspace(-radius + gap / 2, radius - gap / 2, ARROWS)
        points = torch.cartesian_prod(axis, axis)
        velocity = self._world.field(points)
        speed = velocity.norm(dim=1, keepdim=True)
        length = ARROW_LENGTH * gap * (speed / speed.max().clamp(min=1e-9)).sqrt()
        ends = points + velocity / speed.clamp(min=1e-9) * length
        return torch.stack([points, ends], 1).numpy(force=True)


def simulate(num_envs: int, world_seed: int = 0, **settings: Any) -> VectorFieldSimulation:
    """Returns vector fields; settings are keys of `active_dynamics.env` in params.yaml.

    `world_seed` draws what belongs to the world: channels, and a random field.

    Raises:
        ConfigError: a setting is not allowed.
    """
    env = configure(NAME, Env, "active_dynamics", settings)
    generator = Generator(torch.get_default_device()).manual_seed(world_seed)
    field = make_field(env, generator)
    world = make_world(env, field, draw_emission(env.observation, env.d, generator))
    check_step(world)
    return VectorFieldSimulation(world, num_envs)
