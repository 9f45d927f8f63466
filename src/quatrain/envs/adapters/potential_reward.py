"""an environment, a learned representation -> the environment with a reward along it"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

Encoder = Callable[[Any], np.ndarray]


class PotentialReward(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Replaces the reward by the growth of a potential F of observations, F(s') − F(s).

    F is a component of the representation φ, whose maximum an eigenoption seeks, or for a goal g
    the distance −‖φ(s) − φ(g)‖. `info["env_reward"]` is the reward of the environment.

    Source: 'A Laplacian Framework for Option Discovery in Reinforcement Learning' (2017).
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        encoder: Encoder,
        component: int | None = None,
        sign: float = 1.0,
        goal: Any = None,
    ) -> None:
        """Takes an encoder of observations such as `result.encoder`, and a component or a goal.

        Args:
            component: number of the component, from 0, the constant.
            sign: factor of the reward; −1 seeks the component's minimum.
            goal: the observation to approach.

        Raises:
            ValueError: neither component nor goal is given, or both are.
        """
        # So that whoever trains makes it again; a copy of an encoder would copy a network.
        RecordConstructorArgs.__init__(
            self, encoder=encoder, component=component, sign=sign, goal=goal, _disable_deepcopy=True
        )
        gymnasium.Wrapper.__init__(self, env)
        if (component is None) == (goal is None):
            raise ValueError("PotentialReward needs a component or a goal; give one of them")
        self._encoder = encoder
        self._component = component
        self._sign = sign
        self._goal = None if goal is None else encoder(goal)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = self.potential(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        before, self._before = self._before, self.potential(observation)
        grown = self._sign * (self._before - before)
        return observation, grown, terminated, truncated, {**info, "env_reward": reward}

    def potential(self, observation: Any) -> float:
        """Returns F of an observation.

        Raises:
            ValueError: the encoder has no such component.
        """
        vector = self._encoder(observation)
        if self._goal is not None:
            return -float(np.linalg.norm(vector - self._goal))
        if self._component not in range(len(vector)):
            raise ValueError(
                f"component is {self._component}, and the encoder has {len(vector)}; give a number "
                f"from 0 to {len(vector) - 1}"
            )
        return float(vector[self._component])
