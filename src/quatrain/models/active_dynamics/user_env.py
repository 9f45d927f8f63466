"""a name -> a Gymnasium environment whose field can be learned: Box spaces with one axis each."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.host.spaces import reader, to_flag
from quatrain.envs.host.user_code import make_env, user_code
from quatrain.errors import DataError
from quatrain.replay.windows import Transition


class UserSystem:
    """Makes a user's environment a `System`; rewards are ignored, true states are unknown.

    An action beyond the action space is clipped to it. The first episode has the seed, and the
    environment's own random numbers go on from there.
    """

    def __init__(self, name: str, env: Any, seed: int) -> None:
        self.name = name
        self.x = self.final_x = torch.zeros(1, 0)
        self._env = env
        self._seed: int | None = seed
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
            self.action_size = int(env.action_space.shape[0])
            self.observation = torch.zeros(1, env.observation_space.shape[0])

    def reset(self) -> None:
        """Starts an episode.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._run += 1
        self._step = 0
        with self._named_errors():
            values = self._read(self._env.reset(seed=self._seed)[0])
        self._seed = None
        self.observation = torch.tensor(values)[None]

    def step(self, action: Float[Tensor, "1 action"]) -> Transition:
        """Makes one transition, and starts the next episode where it ended one.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._step += 1
        with self._named_errors():
            space = self._env.action_space
            bounded = np.clip(action[0].numpy(force=True), space.low, space.high)
            values, _, terminated, truncated, _ = self._env.step(bounded.astype(space.dtype))
            ended = to_flag("terminated", terminated) | to_flag("truncated", truncated)
            following = torch.tensor(self._read(values))[None]
        self.observation = following
        if ended:
            self.reset()
        return Transition(following, action, torch.tensor([ended]), self.observation)

    def _named_errors(self) -> AbstractContextManager[None]:
        return user_code(
            lambda reason: f"{self.name} (episode {self._run}, step {self._step}): {reason}"
        )


def make_system(name: str, seed: int) -> UserSystem:
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
    return UserSystem(name, env, seed)
