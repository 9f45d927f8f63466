"""Colonies in Gymnasium's terms: its checks pass, and every number is that of the colonies
themselves.
"""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from quatrain.envs.adapters.colony import ColonyEnv, ColonyVectorEnv
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.rules import OVERFLOW, TIMEOUT
from quatrain.envs.colony.world import start, step
from tests.colonies import all_kinds, rules

STEADY = np.array([0.5, 9.0, 0.5, 0.5, 0.0], np.float32)
"""An action that keeps each colony's size."""
ENDED = ("reason", "n", "episode_return", "episode_length", "components_sum")


def vector(num_envs: int = 4, **changes: Any) -> ColonyVectorEnv:
    return ColonyVectorEnv(rules(**changes), all_kinds(), num_envs)


def alone(**changes: Any) -> ColonyEnv:
    return ColonyEnv(rules(**changes), all_kinds())


def drawn(count: int, steps: int) -> list[np.ndarray]:
    """Draws random actions."""
    low, high = np.array(rules().bounds, np.float32).T
    uniform = np.random.default_rng(0).uniform(low, high, (steps, count, 5))
    return list(uniform.astype(np.float32).clip(low, high))


def trajectory(envs: ColonyVectorEnv, actions: list[np.ndarray]) -> list[Any]:
    return [envs.step(action) for action in actions]


@pytest.mark.filterwarnings(
    "ignore:.*For Box action spaces, we recommend", "ignore:.*A Box observation space m"
)
def test_gymnasium_environment_checker_passes():
    check_env(alone(features="full"), skip_render_check=True)


@pytest.mark.parametrize("features", ["light", "full"])
def test_observations_and_actions_are_in_their_space(features: str):
    envs = vector(3, features=features)
    assert envs.observation_space == batch_space(envs.single_observation_space, 3)
    assert envs.action_space == batch_space(envs.single_action_space, 3)
    low, high = envs.single_action_space.low, envs.single_action_space.high
    np.testing.assert_array_equal(np.stack([low, high], 1), np.array(rules().bounds, np.float32))
    assert envs.reset(seed=1)[0] in envs.observation_space
    for action in (*drawn(3, 9), np.tile(low, (3, 1)), np.tile(high, (3, 1))):
        observation, *_, info = envs.step(action)
        assert observation in envs.observation_space
        for row in info.get("_final_obs", np.zeros(3, bool)).nonzero()[0]:
            assert info["final_obs"][row] in envs.single_observation_space


@pytest.mark.parametrize("features", ["light", "full"])
def test_the_colony_alone_is_the_same_without_its_cells(features: str):
    whole = vector(3, features=features)
    envs = ColonyVectorEnv(rules(features=features), all_kinds(), 3, graph_only=True)
    observed = [whole.reset(seed=1)[0], envs.reset(seed=1)[0]]
    ended = 0
    for action in drawn(3, 20):
        assert observed[1].keys() == {"graph"}
        np.testing.assert_allclose(observed[1]["graph"], observed[0]["graph"], rtol=1e-6)
        (*_, info), (*_, of_graphs) = steps = [env.step(action) for env in (whole, envs)]
        observed = [result[0] for result in steps]
        assert observed[1] in envs.observation_space
        for row in info.get("_final_obs", np.zeros(3, bool)).nonzero()[0]:
            final = of_graphs["final_obs"][row]["graph"]
            np.testing.assert_allclose(final, info["final_obs"][row]["graph"], rtol=1e-6)
            ended += 1
    assert ended


def test_an_ended_colony_is_reset_in_the_same_step():
    """Everything that is returned, from the world's own functions with the same random numbers."""
    envs, generator = vector(5, max_steps=6), torch.Generator().manual_seed(7)
    world = make_world(rules(max_steps=6), all_kinds())
    colonies = start(world, 5, generator)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    np.testing.assert_array_equal(envs.reset(seed=7)[0]["node"], observe(world, colonies, 100).node)
    keys = {prefix + name for name in (*ENDED, "final_obs", "final_info") for prefix in ("", "_")}
    codes, sums, returns = set(), torch.zeros(5, 6), torch.zeros(5)
    for action in drawn(5, 25):
        *result, info = envs.step(action)
        stepped = step(world, colonies, torch.tensor(action), generator)
        colonies, over = stepped.colonies, stepped.terminated | stepped.truncated
        sums, returns = sums + stepped.components, returns + stepped.reward
        flags = (stepped.reward, stepped.terminated, stepped.truncated)
        assert same([observe(world, colonies, 100)._asdict(), *flags], result)
        assert set(info) == (keys if over.any() else set())
        if over.any():
            reported = (stepped.reason, stepped.final.n, returns, stepped.final.t, sums)
            for place in (info, info["final_info"]):
                assert same([values[over] for values in reported], [place[n][over] for n in ENDED])
                assert same([over] * 5, [place[f"_{name}"] for name in ENDED])
            assert same([over] * 2, [info["_final_obs"], info["_final_info"]])
            last = observe(world, stepped.final, 100)._asdict()
            for row, final in enumerate(info["final_obs"]):
                assert (final is None) == (not over[row])
                if final is not None:
                    assert same([{name: last[name][row] for name in final}], [final])
        codes |= set(stepped.reason.tolist())
        sums, returns = sums * ~over[:, None], returns * ~over
    assert {0, OVERFLOW, TIMEOUT} <= codes


def same(tensors: list[Any], arrays: list[Any]) -> bool:
    """Returns whether values are equal, in dictionaries too, whatever their types."""
    pairs = zip(jax.tree.leaves(tensors), jax.tree.leaves(arrays), strict=True)
    return all(np.array_equal(*map(np.asarray, pair)) for pair in pairs)


def test_a_seed_decides_the_episodes_and_without_one_the_random_numbers_go_on():
    reported = []
    for seed in (5, 5, 6):
        envs = vector()
        episodes = [envs.reset(seed=seed), trajectory(envs, drawn(4, 30))]
        reported.append([*episodes, envs.reset()])
    assert data_equivalence(reported[0], reported[1], exact=True)
    assert not np.array_equal(reported[0][0][0]["node"], reported[2][0][0]["node"])
    assert not np.array_equal(reported[0][0][0]["node"], reported[0][-1][0]["node"])
    assert not np.array_equal(vector().reset()[0]["node"], vector().reset()[0]["node"])


def test_a_restored_environment_continues_bit_for_bit():
    actions = drawn(4, 40)
    whole, other = vector(features="full"), vector(features="full")
    whole.reset(seed=3)
    trajectory(whole, actions[:17])
    state = whole.state_dict()
    assert all(isinstance(values, torch.Tensor) for values in state.values())
    expected, now = trajectory(whole, actions[17:]), vector(features="full")
    for envs in (other, now):  # a state can be loaded more than once: running on does not change it
        envs.load_state_dict(state)
        assert data_equivalence(trajectory(envs, actions[17:]), expected, exact=True)
    with pytest.raises(
        ValueError,
        match=r"The state is of .* \(\(4, 100\), \(4, 6\)\), this environment of \(\(3, 100\)",
    ):
        vector(3, features="full").load_state_dict(state)


def test_returned_arrays_never_change():
    envs = vector()
    observation, _ = envs.reset(seed=1)
    kept = {name: values.copy() for name, values in observation.items()}
    for values in observation.values():
        values[...] = 0
    assert data_equivalence(envs.observation(), kept, exact=True)


def test_a_vector_of_one_is_the_single_environment():
    """Through the ends of episodes, where only one of the two needs a reset."""
    many, item = vector(1, max_steps=7), alone(max_steps=7)
    observed, single = many.reset(seed=2)[0], item.reset(seed=2)[0]
    ends = 0
    for action in drawn(1, 40):
        for name in observed:
            np.testing.assert_array_equal(observed[name][0], single[name])
        observed, reward, terminated, truncated, info = many.step(action)
        single, *reported, single_info = item.step(action[0])
        assert reported == [reward[0], terminated[0], truncated[0]]
        if terminated[0] or truncated[0]:
            ends += 1
            assert data_equivalence(single, info["final_obs"][0], exact=True)
            expected = {name: info[name][0] for name in ENDED}
            assert data_equivalence(single_info, expected, exact=True)
            single, _ = item.reset()
        else:
            assert single_info == {}
    assert ends > 5


def test_a_step_needs_an_episode_and_a_reset_takes_no_options():
    needed = pytest.raises(
        gymnasium.error.ResetNeeded,
        match=r"No episode is running: call reset\(\) before step\(\)\.",
    )
    env = alone(max_steps=1)
    with needed:
        vector(1).step(STEADY[None])
    with needed:
        env.step(STEADY)
    first, _ = env.reset(seed=1)
    env.step(STEADY)
    with needed:
        env.step(STEADY)
    assert data_equivalence(first, env.reset(seed=1)[0], exact=True)
    assert not np.array_equal(env.reset()[0]["node"], first["node"])
    for some in (vector(), env):
        with pytest.raises(
            ValueError, match=r"reset\(\) takes no options, got \['size'\]; remove them\."
        ):
            some.reset(seed=0, options={"size": 3})
