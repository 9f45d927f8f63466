"""PPO in environments of users: known values, actions of every kind, refusals, CartPole."""

import re
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.storage.params_file import read_params
from quatrain.errors import ConfigError, DataError, DatasetMismatch
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic import ppo
from quatrain.models.actor_critic.collect import check
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.models.actor_critic.network import Output, ScaledNetwork, Shape
from quatrain.models.actor_critic.policy import DISTRIBUTIONS
from quatrain.models.actor_critic.rules import USER_ENV_GATED
from quatrain.models.actor_critic.serve import export, load, request
from quatrain.models.actor_critic.train import train
from quatrain.models.actor_critic.user_env import spec_of, to_graphs
from quatrain.replay.rollouts import Graphs, Spec
from quatrain.serving import answer
from quatrain.validation import overlaid
from tests.conftest import ROOT, params_with, shapes_unchecked
from tests.models.actor_critic.learners import dataset_of, make_learner, scores_of, trained
from tests.models.actor_critic.user_envs import section

pytestmark = pytest.mark.usefixtures("one_thread")


def config_of(name: str, changes: dict[str, Any], **kwargs: Any) -> ActorCriticUserEnvConfig:
    return params_with({"actor_critic": overlaid(section(name, **kwargs), changes)}).actor_critic


def scores(config: ActorCriticUserEnvConfig) -> dict[str, float]:
    return scores_of(config, trained(config).state)


# How it is judged.


def test_the_size_of_rewards_does_not_change_the_score_and_another_seed_holds_it():
    config, rich = config_of("Signs", {}), config_of("Signs", {}, pays=1e4)
    with shapes_unchecked():
        *_, other = train(config, dataset_of(config), 1)
    first = trained(config).state
    stored, again = scores_of(config, first), scores_of(config, other.state)
    scaled = scores_of(rich, first)
    assert scaled["return_mean"] == pytest.approx(1e4 * stored["return_mean"])
    for name in ("score", "random_score", "constant_score", "untrained_score"):
        assert scaled[name] == pytest.approx(stored[name])
    assert stored["constant_score"] == 0 > stored["random_score"]
    (rule,) = USER_ENV_GATED
    assert min(stored["score"], again["score"]) > rule.tolerance
    assert abs(again["score"] - stored["score"]) <= rule.tolerance


# What is learned.


@pytest.mark.parametrize(
    ("ends", "obs", "expected"),
    [(True, [[0, 0], [1, 0], [2, 0]], [1 + 1 / 2 + 1 / 4, 1.5, 1.0]), (False, [[0, 0]], [2.0])],
    ids=["an end", "a clock, which cuts each episode after five steps"],
)
def test_nothing_follows_an_end_and_a_clock_that_runs_out_ends_nothing(
    ends: bool, obs: list[list[float]], expected: list[float]
):
    brief = {"train": {"transitions": 7 * 16 * 25, "evaluate_every": 0}}
    config = config_of("Steps", brief, ends=ends)
    spec = spec_of(config, dataset_of(config))
    actor = networks.load_actor(config, spec, trained(config).state.params[0])
    result = actor.value(to_graphs(np.array(obs, np.float32))).numpy()
    np.testing.assert_allclose(result, expected, atol=0.1)


def test_the_next_value_of_a_truncated_step_is_that_of_its_own_last_observation():
    """The value is the number shown, which is one more after each step of an episode."""
    learner = make_learner(config_of("Stopwatch", {}))

    def shown(graphs: Graphs) -> Output:
        return Output(torch.zeros(len(graphs.graph), 6), graphs.graph[:, 0])

    learner.actor = learner.actor._replace(forward=shown, eager=shown)
    with closing(learner.envs):
        ppo.collect(learner)
    rollout = learner.rollout
    assert not rollout.terminated.any()
    assert 0 < rollout.truncated[:-1].sum() < rollout.truncated[:-1].numel()
    assert 0 < rollout.truncated[-1].sum() < rollout.truncated[-1].numel()
    torch.testing.assert_close(rollout.next_value, rollout.graph[..., 0] + 1, rtol=0, atol=0)


@pytest.mark.full
@pytest.mark.parametrize("policy", DISTRIBUTIONS)
def test_a_vector_is_learned_within_its_bounds(policy: str):
    changes = {"network": {"policy": policy}, "train": {"transitions": 7 * 16 * 40}}
    result = scores(config_of("Pointer", changes))
    below = max(result["random_return"], result["constant_return"], result["untrained_return"])
    assert below < -2
    assert result["return_mean"] > -1


def test_the_integers_at_the_ends_of_a_box_are_learned():
    result = scores(config_of("Dial", {"train": {"transitions": 7 * 16 * 16}}))
    assert result["random_return"] == pytest.approx(5 * (1 / 4 + 1 / 5) / 2, abs=0.3)
    assert result["return_mean"] > 4


def config_in(name: str, changes: dict[str, Any], **kwargs: Any) -> ActorCriticUserEnvConfig:
    """Returns the config of a small learner in one of tests/own_envs.py."""
    env = {"env": {"import": f"tests.own_envs:{name}"}}
    return config_of("Signs", overlaid(env, changes), **kwargs)


@pytest.mark.parametrize("kind", ["binary", "discrete"])
def test_each_index_of_an_action_is_learned(kind: str):
    result = scores(config_in("Switches", {"train": {"transitions": 7 * 16 * 16}}, kind=kind))
    assert result["random_return"] < 3
    assert result["return_mean"] > 4.5


def test_legal_actions_alone_are_taken_and_learned():
    result = scores(config_in("Doors", {}))  # which raises at a closed one
    below = max(result["random_return"], result["constant_return"], result["untrained_return"])
    assert below < 3
    assert result["return_mean"] > 3.8


def test_images_are_learned():
    train = {"horizon": 64, "transitions": 7 * 64 * 10, "learning_rate": 3e-3}
    train |= {"discount": 0.95, "discount_end": 0.95, "evaluate_every": 0}
    result = scores(config_in("Catch", {"train": train}))
    below = max(result["random_return"], result["constant_return"], result["untrained_return"])
    assert below < 0.5
    assert result["return_mean"] > 0.8


@pytest.mark.slow
def test_cartpole_is_solved():
    config = read_params(ROOT, "gymnasium").actor_critic
    assert isinstance(config, ActorCriticUserEnvConfig)
    result = scores(config.model_copy(update={"seeds": 1}))
    assert result["return_mean"] >= 475
    assert max(result["random_return"], result["constant_return"]) < 40


# The scale of observations.


def test_the_running_scale_is_that_of_all_observations_together():
    shape = Shape(inputs=3, d=4, layers=1, raw=2, values=())
    network = ScaledNetwork(shape, Spec(0, 0, 3, (), (), (2,), 1), "running")
    obs = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 7 + 20
    for part in obs.split(13):
        network.end_iteration(part)
    torch.testing.assert_close(network.obs_mean, obs.mean(0))
    torch.testing.assert_close(network.obs_variance, obs.var(0, correction=0))
    assert network.obs_count == 50
    scaled = network.encode(to_graphs(obs.numpy()))
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scale", ["running", "dataset", "none"])
def test_a_scale_moves_only_if_it_is_running_and_none_leaves_observations_as_they_are(scale: str):
    config = config_of("Signs", {"network": {"observation_scale": scale}})
    dataset = dataset_of(config)
    (params,) = trained(config).state.params
    measured = np.allclose(params["obs_mean"], dataset.train.obs_mean.astype(np.float32))
    assert (bool(params["obs_mean"].any()), measured) == (scale != "none", scale == "dataset")
    obs = np.array([[12.0, -7e8]], np.float32)
    network = networks.make_network(config, spec_of(config, dataset))
    scaled = network.encode(to_graphs(obs))
    assert np.array_equal(scaled, obs if scale == "none" else [[10.0, -10.0]])


# Refusals.


def test_an_action_that_leaves_nothing_to_choose_is_refused():
    with pytest.raises(DataError, match="number 1 of the action is between 2 and 2"):
        dataset_of(config_of("Unbounded", {}))


def test_a_dataset_of_another_config_is_refused():
    config = config_of("Signs", {})
    dataset = dataset_of(config)
    short = dataset._replace(train=dataset.train._replace(obs_mean=np.zeros(1)))
    with pytest.raises(DatasetMismatch, match=r"obs_mean has the shape \(1,\), not \(2,\)"):
        check(config, short)
    with pytest.raises(DatasetMismatch, match=r"its action_counts is \(\), and was \(6,\)"):
        check(config_of("Pointer", {}), dataset)


def test_answers_have_the_actions_of_the_environment():
    brief = {"train": {"transitions": 112, "record_every": 1}}
    for config, shape, further, dtype in (
        (config_of("Signs", brief), (3,), {"probabilities"}, np.int32),
        (config_of("Pointer", brief), (3, 2), set(), np.float32),
        (config_of("Dial", brief), (3, 2), set(), np.int32),
        (config_in("Doors", brief), (3,), {"probabilities"}, np.int32),
        (config_in("Switches", brief), (3, 3), {"probabilities"}, np.int32),
        (config_in("Catch", brief), (3,), {"probabilities"}, np.int32),
        (config_in("Catch", brief, layout="dict"), (3,), {"probabilities"}, np.int32),
    ):
        dataset, state = dataset_of(config), trained(config).state
        arrays = export(config, state, dataset)
        answered = answer("actor_critic", load(config, arrays), request(config, dataset))
        assert answered.keys() == {"action", "value"} | further
        assert answered["action"].shape == shape
        assert answered["action"].dtype == dtype


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"kind": "pettingzoo"}}, "env.kind pettingzoo has several agents"),
        (
            {"env": {"max_episode_steps": None}, "train": {"num_envs": 10**5}},
            "actions: train.num_envs * env.max_episode_steps takes about 75 GiB; at most 64",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_of("Signs", changes)
