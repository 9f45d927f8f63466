"""Rewards along a representation whose values are known."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from quatrain.envs.adapters.potential_reward import PotentialReward
from quatrain.envs.host import user_code
from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.given import keys_of
from tests.models.allo.user_envs import Corridor


def squares(observation: np.ndarray) -> np.ndarray:
    return np.stack([observation[..., 0], observation[..., 0] ** 2], -1)


def right(env: gymnasium.Env) -> list[float]:
    """Returns the rewards of two steps to the right, after a first one that ends at place 6."""
    env.reset(seed=0)
    env.unwrapped.place = 3.0
    return [env.step(1)[1] for _ in range(3)][1:]


def test_the_reward_is_the_growth_of_a_component_or_of_minus_its_sign():
    assert right(PotentialReward(Corridor(), squares, component=1)) == [9, 11]
    assert right(PotentialReward(Corridor(), squares, component=0, sign=-2.0)) == [-2, -2]


def test_the_reward_for_a_goal_is_how_much_nearer_a_step_comes():
    goal = np.array([6, 0.1], np.float32)
    distances = [np.hypot(6 - place, 36 - place**2) for place in (4, 5, 6)]
    rewards = right(PotentialReward(Corridor(), squares, goal=goal))
    np.testing.assert_allclose(rewards, -np.diff(distances))


def test_the_own_reward_is_told_and_spaces_stay():
    env = PotentialReward(Corridor(), squares, component=0)
    env.reset(seed=0)
    assert env.step(1)[-1]["env_reward"] == 0
    assert isinstance(env.observation_space, Box)


def test_neither_or_both_is_refused():
    with pytest.raises(ValueError, match="needs a component or a goal; give one of them"):
        PotentialReward(Corridor(), squares)
    with pytest.raises(ValueError, match="component is 2, and the encoder has 2; give a number fr"):
        PotentialReward(Corridor(), squares, component=2).reset(seed=0)


def test_an_instance_is_made_again_with_its_encoder():
    env = PotentialReward(gymnasium.make("CartPole-v1"), squares, component=1, sign=-3.0)
    again = HostEnv.model_validate(keys_of(env) | {"vectorization": "sync"})
    (wrapper,) = again.wrappers
    potential = user_code.make(again).env.potential(np.array([2.0]))
    assert (wrapper.name, potential) == ("PotentialReward", 4.0)
