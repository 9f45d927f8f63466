"""World -> one row of it in Gymnasium's terms: numpy in, numpy out."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Generator, Tensor

from quatrain.envs.vector_field.world import EnvState, World, check_actions, draw, reset, step

Info = dict[str, Any]
UNKNOWN_OPTIONS = "reset() takes no options, got {}; remove them."
RESET_NEEDED = "No episode is running: call reset() before step()."


class VectorFieldGym(gymnasium.Env[np.ndarray, np.ndarray]):
    """A single row, whose episodes are truncated but never terminate; the reward is 0.

    `info["state"]` is where the observation was made. An action outside the box acts as the nearest one within.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, world: World) -> None:
        obs, bound = len(world.emission.weight), world.spec.action_bound
        self.observation_space = Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = Box(-bound, bound, (world.spec.action_size,), np.float32)
        self._world = world
        self._noise = Generator(torch.get_default_device())
        self._counts = Generator(torch.get_default_device())
        self._seeded = False
        self._state: EnvState | None = None

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        """Begin an episode; without a seed the random numbers go on, the first time from nowhere in particular.

        Raises:
            ValueError: there are options.
        """
        if options:
            raise ValueError(UNKNOWN_OPTIONS.format(sorted(options)))
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            for generator in (self._noise, self._counts):
                generator.manual_seed(int(self.np_random.integers(2**63)))
            self._seeded = True
        started = reset(self._world, draw(self._world, 1, [self._noise]), [self._counts])
        self._state = started.state
        return _first(started.observation), {"state": _first(started.state.x)}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        """One transition; where it was truncated, its observation is the last one and the next call is `reset`.

        Raises:
            ValueError: the action is not as many finite numbers as the action space has.
            gymnasium.error.ResetNeeded: the episode was truncated, or none was begun.
        """
        if self._state is None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        actions = torch.tensor(self._checked(action))[None]
        stepped = step(
            self._world, self._state, actions, draw(self._world, 1, [self._noise]), [self._counts]
        )
        truncated = bool(stepped.truncated)
        self._state = None if truncated else stepped.state
        return (
            _first(stepped.final_observation),
            0.0,
            False,
            truncated,
            {"state": _first(stepped.final_x)},
        )

    def _checked(self, action: np.ndarray) -> np.ndarray:
        values = np.asarray(action, np.float32)
        if values.shape != self.action_space.shape:
            raise ValueError(f"An action has shape {self.action_space.shape}, got {values.shape}.")
        check_actions(torch.tensor(values)[None])
        return values


def _first(rows: Tensor) -> np.ndarray:
    """Of the only row, a copy, so that what was given away is the caller's."""
    return rows[0].cpu().numpy().copy()
