"""Steps of the adapters are those of the worlds themselves."""

from typing import Any

import gymnasium
import jax
import numpy as np
import torch
from gymnasium.spaces import Box

from quatrain.envs.adapters.simulation import SimulationEnv
from quatrain.envs.adapters.vector_field import VectorFieldSimulation
from quatrain.envs.grid import dynamics
from quatrain.envs.grid.layouts import parse_layout
from quatrain.envs.vector_field.world import step_mean
from tests.conftest import params_with
from tests.envs.vector_field.worlds import points, world_of

HALLS = "S.X...\n..X.X.\n......\nX.X..G"


def vector(name: str, num_envs: int, **settings: Any) -> Any:
    return gymnasium.make_vec(f"quatrain/{name}-v0", num_envs=num_envs, **settings)


def test_a_grid_moves_as_its_tables_say_and_its_goal_pays():
    envs = vector("Grid", 64, layout=HALLS, max_episode_steps=30)
    grid = dynamics.make_grid(parse_layout(HALLS, "halls"))
    env = params_with({}).allo.env
    inputs = dynamics.observe(env, grid, dynamics.draw_frequencies(env, 0))
    _, info = envs.reset(seed=0)
    states, elapsed = info["state"], np.zeros(64, int)
    assert (states != grid.goal).all()
    rng, pays, late = np.random.default_rng(0), 0, 0
    step = jax.vmap(dynamics.step, (None, 0, 0, 0, None))
    for _ in range(100):
        actions = rng.integers(4, size=64)
        expected = step(grid, states, elapsed, actions, 30)
        observation, rewards, terminated, truncated, info = envs.step(actions)
        np.testing.assert_array_equal(terminated, expected.terminated)
        np.testing.assert_array_equal(truncated, expected.truncated)
        np.testing.assert_array_equal(rewards, terminated.astype(float))
        ended = terminated | truncated
        np.testing.assert_array_equal(info["state"][~ended], expected.next_state[~ended])
        np.testing.assert_array_equal(observation, inputs[info["state"]])
        pays += terminated.sum()
        late += truncated.sum()
        states, elapsed = info["state"], np.where(ended, 0, elapsed + 1)
    assert pays > 20
    assert late > 20


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
