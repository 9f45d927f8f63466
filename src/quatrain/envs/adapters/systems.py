"""a name -> a Gymnasium environment whose field can be learned: Box spaces with one axis each."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from quatrain.envs.host.returned import reader, to_flag
from quatrain.envs.host.user_code import make_env, user_code
from quatrain.errors import DataError


class System:
    """Wraps an environment: numpy vectors in and out; rewards are ignored.

    An action beyond the action space is clipped to it.
    """

    def __init__(self, name: str, env: Any) -> None:
        self.name = name
        self._env = env
        self._run = -1
        self._step = 0
        with user_code(lambda reason: f"{name}: {reason}"):
            for kind in ("observation", "action"):
                space = getattr(env, f"{kind}_space", None)
                if not isinstance(space, Box) or len(space.shape) != 1:
                    raise DataError(f"{kind}_space is {space}; it must be a Box with one axis")
            if env.action_space.dtype.kind != "f":
                raise DataError(f"action_space is {env.action_space}; it must hold floats")
            self._read = reader("the observation", env.observation_space)
            self.actions = int(env.action_space.shape[0])
            self.channels = int(env.observation_space.shape[0])

    def reset(self, seed: int | None) -> np.ndarray:
        """Starts a run; returns its first observation.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._run += 1
        self._step = 0
        with self._named_errors():
            return self._read(self._env.reset(seed=seed)[0])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Returns the next observation, and whether the run ended with it.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._step += 1
        with self._named_errors():
            space = self._env.action_space
            bounded = np.clip(action, space.low, space.high).astype(space.dtype)
            observation, _, terminated, truncated, _ = self._env.step(bounded)
            ended = to_flag("terminated", terminated) | to_flag("truncated", truncated)
            return self._read(observation), ended

    def _named_errors(self) -> AbstractContextManager[None]:
        return user_code(
            lambda reason: f"{self.name} (episode {self._run}, step {self._step}): {reason}"
        )


def make_system(name: str) -> System:
    """Returns the environment of a class, "module:Name", or of a registered id, "Pendulum-v1".

    Raises:
        DataError: there is no such class or id, or its spaces are no Boxes with one axis.
    """
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier():  # an id, which Gymnasium lets begin with a module, too
        module = attribute = ""
    with user_code(
        lambda reason: (
            f"{name}: {reason}; name an installed id of Gymnasium, or module:Name of a class "
            "without arguments"
        )
    ):
        env = make_env(module, attribute, name, {})
        env = env if attribute else env.unwrapped
    return System(name, env)
