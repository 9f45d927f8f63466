"""iqn in environments that are written in JAX: how they are stepped, learned, restored, refused."""

from contextlib import closing
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quatrain
from quatrain.envs.treasurehunt import turns
from quatrain.errors import ConfigError, DataError
from quatrain.models.iqn.collect import collect, scaled
from quatrain.models.iqn.config import IqnJaxEnvConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.jax_env import Envs, make
from quatrain.models.iqn.train import (
    WATCHED,
    Cycle,
    from_arrays,
    greedy_returns,
    raise_if_diverged,
    to_arrays,
    train,
)
from quatrain.models.iqn.user_env import ReplayEnvs, by_seed, stack
from quatrain.progress import Progress, TrainingDiverged
from quatrain.validation import overlaid
from tests.config_keys import overlay_of
from tests.conftest import params_with, shapes_unchecked
from tests.models.iqn import jax_envs, user_envs


def jax_env(*changes: str, name: str = "Laps", **kwargs: Any) -> Any:
    """Returns a small config with changes such as `train.turns: 64`."""
    section = user_envs.section(name, "jax", **kwargs)
    of_env = {"import": f"{jax_envs.__name__}:{name}", "max_episode_steps": None}
    section = overlaid(section, {"env": of_env})
    config = params_with({"iqn": overlaid(section, overlay_of(*changes))}).iqn
    assert isinstance(config, IqnJaxEnvConfig)
    return config


# How they are stepped.


@pytest.mark.parametrize("name", ["Laps", "Telling", "Wrapped", "pair"])
def test_turns_inside_a_compiled_program_and_between_them_are_those_of_a_plain_loop(name: str):
    config = jax_env(name=name)
    world, interface = make(config.env)
    limit = 4 if name == "pair" else 6
    assert (interface.observation_size, interface.max_episode_steps) == (4, limit)
    with closing(Envs(config.env, 5, 7)) as envs:
        keys, replay = envs._keys, ReplayEnvs(envs)
        between = stack([replay.step(np.ones((5, 1), int)) for _ in range(40)])
    policy = lambda _key, _agent, stack, _states: jnp.ones(len(stack), jnp.int8)  # noqa: E731
    begun = turns.start(world, keys, frames=1)
    inside = turns.play(world, begun, policy, jax.random.key(0), 0, 40).turns
    for column in ("frames", "rewards", "terminated", "final", "turn"):
        np.testing.assert_array_equal(getattr(inside, column), getattr(between, column))
    cell = between.frames[:, 0, :, :3].argmax(-1)
    np.testing.assert_array_equal(cell, between.turn % 3)
    last = (between.turn == limit) if name != "Laps" else between.final
    np.testing.assert_array_equal(between.final, last)
    pays = (cell == 1) & ~between.final
    np.testing.assert_array_equal(between.rewards[:, 0], pays)
    assert pays[between.terminated].all()
    assert between.final.any()
    assert between.terminated.any()
    assert len(np.unique(between.frames[:, 0, :, 3])) > 20


def test_a_number_takes_the_place_of_the_environments_own_limit():
    for number in (3, 9):
        config = jax_env(f"env.max_episode_steps: {number}", name="Telling")
        with closing(Envs(config.env, 1, 0)) as envs:
            steps = [envs.step(np.zeros((1, 1), int)) for _ in range(number)]
        assert [bool(step.truncated[0]) for step in steps] == [False] * (number - 1) + [True]


# What is learned.

LEARNER = jax_env("seeds: 2", "train: {turns: 80, record_every: 20, evaluate_every: 20}")


@cache
def trained() -> tuple[Any, list[Progress]]:
    with shapes_unchecked():
        dataset = collect(LEARNER, 0)
        return dataset, list(train(LEARNER, dataset, 0))


def test_it_learns_to_walk_on_and_is_scored_as_in_any_environment_of_a_user():
    dataset, yields = trained()
    with shapes_unchecked():
        scores = evaluate(LEARNER, yields[-1].state, dataset, 0).scores
    assert scores["return_mean"] > 1.15 * scores["random_return"]
    # Walking on is the best policy, whatever is seen.
    assert scores["return_mean"] == pytest.approx(scores["constant_return"], abs=0.1)


def test_a_restored_learner_goes_on_as_the_one_that_was_not_cut_off():
    dataset, yields = trained()
    middle, end = (to_arrays(yields[place].state) for place in (3, -1))
    with shapes_unchecked():
        *_, last = train(LEARNER, dataset, 0, from_arrays(LEARNER, dataset, middle))
    np.testing.assert_equal(to_arrays(last.state), end)


def test_the_replay_and_the_greedy_policy_see_scaled_observations():
    dataset, yields = trained()
    state = yields[-1].state
    for scale, frames, ring in zip(
        by_seed(state.scale), dataset.train.frames, state.ring.data.frames, strict=True
    ):
        inputs = scaled(scale, np.array([[1, 0, 0, 0.0], [0, 1, 0, 0], [0, 0, 1, 0]], np.float32))
        written = np.asarray(ring[: int(state.ring.written[0])])[..., :3].reshape(-1, 3)
        distance = np.abs(written[:, None] - inputs[:, :3]).max(-1).min(-1)
        assert frames.shape[-1] == 4
        assert distance.max() < 1e-5
    world = make(LEARNER.env).world
    seeds = (state.params, state.base_key)
    other = state.scale._replace(mean=state.scale.mean + 9)
    with shapes_unchecked():
        returns = greedy_returns(LEARNER, world, (*seeds, state.scale))
        others = greedy_returns(LEARNER, world, (*seeds, other))
    assert not np.array_equal(returns, others)


# Environments of gymnax.


GYMNAX = ("env: {import: 'gymnax:make'}", "network.frames: 1", "collect.held_out_worlds: 4")


def test_a_game_of_minatar_is_collected_trained_and_scored():
    config = jax_env(*GYMNAX, env_id="Breakout-MinAtar")
    with shapes_unchecked():
        dataset = collect(config, 0)
        interface = dataset.interface.restored
        *_, last = train(config, dataset, 0)
        scores = evaluate(config, last.state, dataset, 0).scores
    sizes = (interface.observation_size, *interface.action_counts, interface.max_episode_steps)
    assert sizes == (400, 3, 1000)
    assert scores["held_out_episodes"] == 4


@pytest.mark.slow
def test_cartpole_of_gymnax_is_solved_by_the_preset():
    env = {"kind": "jax", "import": "gymnax:make", "kwargs": {"env_id": "CartPole-v1"}}
    with shapes_unchecked():
        scores = quatrain.fit("iqn", env=env).scores
    assert scores["return_mean"] >= 475
    assert max(scores[f"{name}_return"] for name in ("random", "constant", "untrained")) < 100


# What is refused.


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Missing", r"^env tests\S+:Missing cannot be made: module tests\S+ has no Missing"),
        ("no_env", r"^env tests\S+:no_env: AttributeError: 'int' object has no .*default_params"),
        ("Endless", r": its parameters have max_steps_in_episode None.* set max_episode_steps"),
        ("Grows", r": step returns a state\.time that is float32\(\); return int32\(\), as reset"),
        ("Continuous", r": it has continuous actions, and iqn needs Discrete ones"),
        ("Overflows", r"\(number 0, episode 0, step 2\): .* a reward that is not finite"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_line(name: str, line: str):
    with pytest.raises(DataError, match=line) as refused:
        collect(jax_env(name=name), 0)
    assert "\n" not in str(refused.value)


def test_a_loss_of_a_reward_that_is_not_finite_blames_the_environment():
    turns = collect(LEARNER, 0).train
    metrics = {name: np.full((1, 1, 1, 1), np.nan) for name in WATCHED}
    cycles = Cycle(metrics, {}, 0, np.ones((1, 1)), 1)
    for reward, remedy in ((np.inf, "The environment returned"), (1.0, "Lower iqn")):
        stored = turns._replace(rewards=np.full_like(turns.rewards, reward))
        with pytest.raises(TrainingDiverged, match=f"seed 0 became nan .*{remedy}"):
            raise_if_diverged(cycles, 0, stored)


@pytest.mark.parametrize("change", ["env.id: CartPole-v1", "env.vectorization: async"])
def test_what_only_python_environments_have_is_refused(change: str):
    with pytest.raises(ConfigError, match=r"iqn\.env"):
        jax_env(change)


def test_other_learners_take_no_environment_written_in_jax():
    with pytest.raises(ConfigError, match=r"allo\.env\.kind = 'jax': Input should be 'gymnasium'"):
        quatrain.config("allo", env={"kind": "jax", "import": "gymnax:make"})
