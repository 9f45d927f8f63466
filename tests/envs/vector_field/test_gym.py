"""A row in Gymnasium's terms: its checks pass, and every number is that of the world itself."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env

from quatrain.envs.adapters.simulation import SimulationEnv
from quatrain.envs.adapters.vector_field import VectorFieldSimulation
from quatrain.envs.vector_field.world import step_mean
from tests.envs.vector_field.worlds import gaussian, points, poisson, world_of

AWAY = {"kind": "linear", "matrix": ((1.0, 0.0), (0.0, 1.0))}
CONTROL = ((0.5, 0.0, 1.0), (0.0, 1.0, 1.0))


def env_of(*args: Any, **changes: Any) -> SimulationEnv:
    return SimulationEnv(VectorFieldSimulation(world_of(*args, **changes), 1))


def actions(count: int) -> list[np.ndarray]:
    return list(points(count, 2, reach=1.0).numpy())


@pytest.mark.filterwarnings("ignore:.*A Box observation space m")
def test_gymnasium_environment_checker_passes_and_spaces_are_those_of_the_world():
    check_env(env_of(poisson(5)), skip_render_check=True)
    env = env_of(gaussian(channels=9), action_bound=0.4, control=CONTROL, episode_transitions=3)
    check_env(env, skip_render_check=True)
    assert env.observation_space == Box(-np.inf, np.inf, (9,), np.float32)
    assert env.action_space == Box(-0.4, 0.4, (3,), np.float32)


def test_a_step_is_that_of_the_world_until_the_state_leaves_the_box():
    world = world_of(process_noise=0.0, **AWAY)
    env = SimulationEnv(VectorFieldSimulation(world, 1))
    truncated, steps = False, iter(actions(100))
    _, info = env.reset(seed=3)
    assert (np.abs(info["state"]) <= 1).all()
    while not truncated:
        before, action = torch.tensor(info["state"]), next(steps)
        info["state"][:] = 99.0  # a copy
        observation, reward, terminated, truncated, info = env.step(action)
        after = torch.tensor(info["state"])
        torch.testing.assert_close(after, step_mean(world, before, torch.tensor(action)))
        noise = observation - world.emission.mean(after).numpy()
        assert 0 < np.abs(noise).max() < 0.6
        assert (reward, terminated, truncated) == (0.0, False, bool(after.abs().max() > 3))


def test_invalid_actions_raise():
    env = env_of()
    env.reset(seed=0)
    message = r"^The action of row 0 is not finite: \[0\.0, nan\]; give finite numbers\.$"
    with pytest.raises(ValueError, match=message):
        env.step(np.array([0, np.nan]))
    with pytest.raises(ValueError, match=r"^An action has shape \(2,\), got \(1, 2\)\.$"):
        env.step(np.zeros((1, 2)))
