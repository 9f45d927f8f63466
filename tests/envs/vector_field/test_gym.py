"""A row in Gymnasium's terms: every number is that of the world itself."""

import numpy as np
import torch
from gymnasium.spaces import Box

from quatrain.envs.adapters.simulation import SimulationEnv
from quatrain.envs.adapters.vector_field import VectorFieldSimulation
from quatrain.envs.vector_field.world import step_mean
from tests.envs.vector_field.worlds import points, world_of

AWAY = {"kind": "linear", "matrix": ((1.0, 0.0), (0.0, 1.0))}
CONTROL = ((0.5, 0.0, 1.0), (0.0, 1.0, 1.0))


def test_a_step_is_that_of_the_world_until_the_state_leaves_the_box():
    world = world_of(process_noise=0.0, action_bound=0.4, control=CONTROL, **AWAY)
    env = SimulationEnv(VectorFieldSimulation(world, 1))
    assert env.observation_space == Box(-np.inf, np.inf, (7,), np.float32)
    assert env.action_space == Box(-0.4, 0.4, (3,), np.float32)
    truncated, actions = False, iter(points(100, 3, reach=0.4).numpy())
    _, info = env.reset(seed=3)
    assert (np.abs(info["state"]) <= 1).all()
    while not truncated:
        before, action = torch.tensor(info["state"]), next(actions)
        info["state"][:] = 99.0  # a copy
        observation, reward, terminated, truncated, info = env.step(action)
        after = torch.tensor(info["state"])
        torch.testing.assert_close(after, step_mean(world, before, torch.tensor(action)))
        noise = observation - world.emission.mean(after).numpy()
        assert 0 < np.abs(noise).max() < 0.6
        assert (reward, terminated, truncated) == (0.0, False, bool(after.abs().max() > 3))
