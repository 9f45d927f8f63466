"""World -> a Gymnasium environment, numpy in and out."""

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
    """Wraps one environment, whose episodes are truncated but never terminate; the reward is 0.

    `info["state"]` is the state of the observation. Actions are clamped to the box.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, world: World) -> None:
        bound = world.spec.action_bound
        self.observation_space = Box(-np.inf, np.inf, (len(world.emission.weight),), np.float32)
        self.action_space = Box(-bound, bound, (world.spec.action_size,), np.float32)
        self._world = world
        self._noise = Generator(torch.get_default_device())
        self._counts = Generator(torch.get_default_device())
        self._seeded = False
        self._state: EnvState | None = None

    def reset(
        self,
        *,
        seed: int | None = None,
        options: Info | None = None,
    ) -> tuple[np.ndarray, Info]:
        """Starts an episode; without a seed continues the random numbers, or seeds them randomly.

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
        result = reset(self._world, draw(self._world, 1, [self._noise]), [self._counts])
        self._state = result.state
        return _first(result.observation), {"state": _first(result.state.x)}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        """Computes one transition; if it is truncated, call `reset` next.

        Raises:
            ValueError: the action has the wrong shape or is not finite.
            gymnasium.error.ResetNeeded: the episode was truncated, or was never started.
        """
        if self._state is None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        values = np.asarray(action, np.float32)
        if values.shape != self.action_space.shape:
            raise ValueError(f"An action has shape {self.action_space.shape}, got {values.shape}.")
        actions = torch.tensor(values)[None]
        check_actions(actions)
        result = step(
            self._world, self._state, actions, draw(self._world, 1, [self._noise]), [self._counts]
        )
        truncated = bool(result.truncated)
        self._state = None if truncated else result.state
        return (
            _first(result.final_observation),
            0.0,
            False,
            truncated,
            {"state": _first(result.final_x)},
        )


def _first(batch: Tensor) -> np.ndarray:
    """Returns a copy of the only item, which the caller may modify."""
    return batch[0].cpu().numpy().copy()
