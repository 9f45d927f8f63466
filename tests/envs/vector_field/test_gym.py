"""A row in Gymnasium's terms: its checks pass, and every number is that of the world itself."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env

from quatrain.envs.adapters.vector_field import VectorFieldGym
from quatrain.envs.vector_field.world import step_mean
from tests.envs.vector_field.worlds import field_spec, gaussian, points, poisson, world_of

QUIET = {"process_noise": 0.0}
AWAY = field_spec("linear", matrix=((1.0, 0.0), (0.0, 1.0)))


def env_of(*args: Any, **changes: Any) -> VectorFieldGym:
    return VectorFieldGym(world_of(*args, **changes))


def actions(count: int) -> list[np.ndarray]:
    return list(points(count, 2, reach=1.0).numpy())


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(env_of(None, poisson(5)), id="counts"),
        pytest.param(
            env_of(control=((0.5, 0.0, 1.0), (0.0, 1.0, 1.0)), episode_transitions=3), id="control"
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*A Box observation space m")
def test_gymnasium_environment_checker_passes(env: VectorFieldGym):
    check_env(env, skip_render_check=True)


def test_spaces_are_those_of_the_world():
    control = ((1.0, 0.0, 1.0), (0.0, 1.0, 1.0))
    env = env_of(None, gaussian(channels=9), action_bound=0.4, control=control)
    assert env.observation_space == Box(-np.inf, np.inf, (9,), np.float32)
    assert env.action_space == Box(-0.4, 0.4, (3,), np.float32)
    assert env.reset(seed=0)[0] in env.observation_space


def test_a_step_is_that_of_the_world():
    world = world_of(**QUIET)
    env = VectorFieldGym(world)
    _, info = env.reset(seed=3)
    assert (np.abs(info["state"]) <= 1).all()
    for action in actions(20):
        before = torch.tensor(info["state"])
        observation, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_allclose(
            info["state"], step_mean(world, before, torch.tensor(action)), rtol=1e-5, atol=1e-6
        )
        noise = observation - world.emission.mean(torch.tensor(info["state"])).numpy()
        assert 0 < np.abs(noise).max() < 0.6
        assert (reward, terminated, truncated) == (0.0, False, False)


def test_an_episode_is_truncated_when_the_state_leaves_the_box():
    env = env_of(AWAY)
    env.reset(seed=1)
    for _ in range(100):
        observation, _, terminated, truncated, info = env.step(np.ones(2, np.float32))
        assert truncated == (np.abs(info["state"]).max() > 3)
        assert not terminated
        if truncated:
            break
    assert truncated
    mean = world_of(AWAY).emission.mean(torch.tensor(info["state"])).numpy()
    np.testing.assert_allclose(observation, mean, atol=0.6)


def test_a_step_needs_an_episode():
    needed = pytest.raises(
        gymnasium.error.ResetNeeded,
        match=r"^No episode is running: call reset\(\) before step\(\)\.$",
    )
    env, action = env_of(episode_transitions=2), np.zeros(2, np.float32)
    with needed:
        env.step(action)
    env.reset(seed=0)
    assert [env.step(action)[3] for _ in range(2)] == [False, True]
    with needed:
        env.step(action)
    env.reset()
    env.step(action)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            np.array([0, np.nan]),
            r"^The action of row 0 is not finite: \[0\.0, nan\]; give finite numbers\.$",
        ),
        (np.zeros(3), r"^An action has shape \(2,\), got \(3,\)\.$"),
        (np.zeros((1, 2)), r"^An action has shape \(2,\), got \(1, 2\)\.$"),
    ],
)
def test_invalid_actions_raise(action: np.ndarray, message: str):
    env = env_of()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)


def test_reset_takes_no_options():
    with pytest.raises(
        ValueError, match=r"^reset\(\) takes no options, got \['x'\]; remove them\.$"
    ):
        env_of().reset(seed=0, options={"x": 3})


@pytest.mark.parametrize("emission", [gaussian(), poisson()])
def test_the_same_seed_gives_the_same_episodes_and_another_others(emission: Any):
    reported = []
    for seed in (5, 5, 6):
        env = env_of(AWAY, emission)
        episode = [env.reset(seed=seed)[0].copy()]
        episode += [env.step(action)[0] for action in actions(5)]
        # Without a seed the random numbers go on.
        reported.append(np.stack([*episode, env.reset()[0]]))
    np.testing.assert_array_equal(reported[0], reported[1])
    assert not np.array_equal(reported[0], reported[2])
    assert not np.array_equal(reported[0][0], reported[0][-1])
    assert not np.array_equal(env_of().reset()[0], env_of().reset()[0])


def test_returned_arrays_never_change():
    env, same = env_of(), env_of()
    observation, info = env.reset(seed=1)
    same.reset(seed=1)
    info["state"][:] = 99.0
    observation[:] = 99.0
    action = np.zeros(2, np.float32)
    np.testing.assert_array_equal(env.step(action)[0], same.step(action)[0])
