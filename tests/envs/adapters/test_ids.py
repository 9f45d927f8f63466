"""All ids of Gymnasium: its checks pass, and a vector holds the same worlds as one alone."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from quatrain.envs.adapters import IDS, register
from quatrain.envs.adapters.settings import default_params
from quatrain.errors import DataError

COLONY = {"target_nodes": 8, "n0_min": 2, "n0_max": 9}
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("quatrain/Grid-v0", {}),
    ("quatrain/Grid-v0", {"layout": "spiral", "observation": "corner"}),
    ("quatrain/Grid-v0", {"observation": "fourier", "fourier": {"scale": 2.0, "count": 3}}),
    ("quatrain/TreasureHunt-v0", {"max_turns": 9}),
    ("quatrain/Colony-v0", COLONY),
    ("quatrain/Colony-v0", {"graph_only": True, "plates": "two_ridges", **COLONY}),
    ("quatrain/VectorField-v0", {"episode_transitions": 7}),
    ("quatrain/VectorField-v0", {"observation": {"noise": "poisson", "kind": "loglinear"}}),
)
variants = pytest.mark.parametrize(("name", "settings"), VARIANTS)
UNBOUNDED = pytest.mark.filterwarnings(
    "ignore:.*A Box observation space m", "ignore:.*For Box action spaces, we recommend"
)


@UNBOUNDED
@variants
def test_checks_of_gymnasium_pass(name: str, settings: dict[str, Any]):
    """Those of an environment, of its pictures, and the passive ones of each step."""
    env = gymnasium.make(name, render_mode="rgb_array", **settings)
    check_env(env.unwrapped)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
    assert gymnasium.make(name, **settings).unwrapped.render() is None


@variants
def test_a_vector_is_in_its_spaces_and_a_seed_decides_its_numbers(
    name: str, settings: dict[str, Any]
):
    runs = []
    for seed in (3, 3, 4):
        envs = make_vector(name, 4, render_mode="rgb_array", **settings)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert envs.observation_space == batch_space(envs.single_observation_space, 4)
        envs.action_space.seed(0)
        observed = [envs.reset(seed=seed)[0]]
        for _ in range(20):
            observation, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
            assert observation in envs.observation_space
            assert {values.shape for values in (rewards, terminated, truncated)} == {(4,)}
            observed.append(observation)
        assert len(envs.render()) == 4
        runs.append([*observed, envs.reset()[0]])
    assert data_equivalence(runs[0], runs[1], exact=True)
    assert not data_equivalence(runs[0], runs[2], exact=True)
    assert not data_equivalence(runs[0][0], runs[0][-1], exact=True)


@variants
def test_a_vector_of_one_is_the_single_environment(name: str, settings: dict[str, Any]):
    """Through the ends of episodes, whose last observation is in the info of the vector."""
    many = make_vector(name, 1, **settings)
    single = gymnasium.make(name, **settings)
    single.action_space.seed(0)
    observed, alone = many.reset(seed=2)[0], single.reset(seed=2)[0]
    ends = 0
    for _ in range(60):
        assert data_equivalence(first(observed), alone, exact=True)
        action = single.action_space.sample()
        observed, rewards, terminated, truncated, info = many.step(np.asarray(action)[None])
        alone, *outcome, _ = single.step(action)
        assert outcome == [rewards[0], terminated[0], truncated[0]]
        if terminated[0] or truncated[0]:
            ends += 1
            assert info["_final_obs"][0]
            assert data_equivalence(info["final_obs"][0], alone, exact=True)
            alone, _ = single.reset()
        else:
            assert "final_obs" not in info
    assert ends or name == "quatrain/VectorField-v0"


def first(batch: Any) -> Any:
    """Returns the first world's part of an observation."""
    if isinstance(batch, dict):
        return {name: values[0] for name, values in batch.items()}
    return batch[0]


def make_vector(name: str, num_envs: int, **settings: Any) -> Any:
    mode = "vector_entry_point"
    return gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode=mode, **settings)


def test_defaults_are_those_of_params_yaml():
    params = default_params()
    assert IDS["quatrain/Grid-v0"][1] == params["allo"]["env"]["max_episode_steps"]
    field, hunt, colony = (
        gymnasium.make(f"quatrain/{name}-v0").observation_space
        for name in ("VectorField", "TreasureHunt", "Colony")
    )
    assert field.shape == (params["active_dynamics"]["env"]["observation"]["channels"],)
    assert hunt.shape[1] == 2 * params["iqn"]["env"]["vision_radius"] + 1
    assert colony["mask"].n == params["actor_critic"]["env"]["max_nodes"]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Grid", {"rows": 3}, "^quatrain/Grid-v0: rows: unknown key; did you mean 'rooms'"),
        ("Grid", {"layout": "room5"}, "layout 'room5'; did you mean 'room4'"),
        ("Grid", {"layout": "ab\n.."}, "layout line 1, column 1: unknown symbol 'a'"),
        ("Colony", {"max_steps": 0}, "max_steps = 0: Input should be greater than or equal to 1"),
        ("Colony", {"plates": "flat"}, "plates = 'flat'; known: default_law, fixed, two_ridges"),
        ("Colony", {"plates": np.ones(7)}, r"plates has shape \(7,\); give 600 positive numbers"),
        ("TreasureHunt", {"agents": 2}, "agents = 2: a Gymnasium environment has one agent; for"),
        ("TreasureHunt", {"layout": "##\n##"}, "no floor cell"),
        ("VectorField", {"field": {"kind": "duffin"}}, "did you mean 'duffing'"),
    ],
)
def test_settings_that_are_not_allowed_are_refused_in_one_line(
    name: str, settings: dict[str, Any], message: str
):
    with pytest.raises((DataError, ValueError), match=message) as error:
        gymnasium.make(f"quatrain/{name}-v0", **settings)
    assert "\n" not in str(error.value)


def test_a_render_mode_that_does_not_exist_is_refused():
    for name in IDS:
        with pytest.raises(DataError, match="render_mode 'human' is unknown; give 'rgb_array'"):
            gymnasium.make(name, render_mode="human")


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("Grid", 4, r"An action is a whole number in 0\.\.3, got \[4\]\."),
        ("Grid", 1.5, r"An action is a whole number in 0\.\.3, got \[1\.5\]\."),
        ("TreasureHunt", -1, r"An action is a whole number in 0\.\.3, got \[-1\]\."),
        ("VectorField", np.array([0, np.nan]), r"The action of row 0 is not finite: \[0\.0, nan\]"),
        ("VectorField", 0.5, r"An action has shape \(2,\), got \(\)\."),
    ],
)
def test_invalid_actions_raise(name: str, action: Any, message: str):
    env = gymnasium.make(f"quatrain/{name}-v0").unwrapped
    needed = pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before step\(\)\.")
    with needed:
        env.step(env.action_space.sample())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)
    envs = make_vector(f"quatrain/{name}-v0", 2)
    with needed:
        envs.step(envs.action_space.sample())
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"^Actions have shape \(2,.*got \(3,\)\.$"):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="one seed for all worlds, not a list"):
        envs.reset(seed=[1, 2])


def test_importing_the_adapters_registers_and_again_changes_nothing():
    before = {name: gymnasium.spec(name) for name in IDS}
    register()
    assert {name: gymnasium.spec(name) for name in IDS} == before
    script = (
        "import sys, gymnasium, quatrain.params\n"
        "assert 'quatrain.envs.adapters' not in sys.modules\n"
        "env = gymnasium.make('quatrain.envs.adapters:quatrain/VectorField-v0')\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
