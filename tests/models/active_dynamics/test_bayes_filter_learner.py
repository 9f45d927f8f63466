"""Learners of bayes_filter: dense algebra, causality, what a planner uses, held-out scores."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, Filter
from quatrain.models.active_dynamics.bayes_filter.learner import (
    BayesFilterLearner,
    frozen_innovation,
    weight_variance,
)
from quatrain.models.active_dynamics.collect import Dataset, Rollouts, collect
from quatrain.models.active_dynamics.learner import Observation
from tests.conftest import small
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.filters import Dense, copied, dense_of, drawn

REPLICATES, CHANNELS, D, LEARNERS = 3, 7, 2, 6
CONTROL = [[0.8, 0.3, -0.2], [-0.5, 0.9, 0.1]]
"""B of three numbers of an action."""
OBSERVED: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "counts": {"kind": "loglinear", "noise": "poisson"},
}


@cache
def configured(observed: str = "linear", episode: int | None = None) -> Any:
    return small(
        "active_dynamics",
        seeds=REPLICATES,
        env={
            "control": CONTROL,
            "episode_transitions": episode,
            "observation": {"channels": CHANNELS} | OBSERVED[observed],
        },
        network={"rbf": {"side": 4, "length": 1.1}},
        train={"acquisition": {"weights": {"fisher_d": 1.0}}},
    )


@cache
def collected(observed: str = "linear", episode: int | None = None) -> Dataset:
    return collect(configured(observed, episode), 3)


def fresh(observed: str = "linear", dataset: Dataset | None = None) -> BayesFilterLearner:
    seed = np.random.SeedSequence(0)
    return BayesFilterLearner.init(configured(observed), dataset or collected(observed), seed)


def transitions(
    learner: BayesFilterLearner, count: int, ends: dict[int, int] | None = None
) -> Iterator[Observation]:
    """Yields observations of states near 0; ends: time -> row whose episode ended."""
    draws = Generator().manual_seed(1)
    for time in range(count):
        action = 2 * torch.rand(LEARNERS, 3, generator=draws) - 1
        y, first = (
            learner.emission.sample(torch.rand(LEARNERS, D, generator=draws) - 0.5, None, draws)
            for _ in range(2)
        )
        ended = torch.arange(LEARNERS) == (ends or {}).get(time, -1)
        first = torch.where(ended[:, None], first, y)
        yield Observation(action, action @ torch.tensor(CONTROL).T, y, ended, first)


def experienced(observed: str = "linear") -> BayesFilterLearner:
    learner = fresh(observed)
    for item in transitions(learner, 6, {4: 1}):
        learner.observe(item)
    return learner


# Learning.


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_transition_is_a_prediction_a_correction_and_perhaps_a_new_episode(observed: str):
    """Beginning with the prior and each replicate's first observation."""
    learner, dataset = fresh(observed), collected(observed)
    channels, functions = learner.emission.double(), learner.filter.rbf
    prior = bayes.prior(functions, LEARNERS, weight_variance(learner.config, learner.filter))
    noise = filters.process_noise(D, prior.mean.shape[1], learner.config.env.process_noise)
    first = torch.tensor(dataset.train.observations[:, 0]).double().repeat(2, 1)
    dense = [filters.corrected(channels, y, dense_of(prior, row)) for row, y in enumerate(first)]
    filters.assert_dense(channels, learner.belief, dense)
    for item in transitions(learner, 4, {2: 4}):
        u, y, begins = (
            part.double() for part in (item.control, item.observation, item.reset_observation)
        )
        nll = learner.observe(item)
        for row in range(LEARNERS):
            ahead = filters.predicted(filters.joint_step(functions, u[row]), noise, dense[row])
            dense[row] = filters.corrected(channels, y[row], ahead)
        filters.assert_close(channels, nll, torch.stack([row.nll for row in dense]), 1e-6)
        for row in item.truncated.nonzero().flatten().tolist():
            dense[row] = filters.restarted(channels, begins[row], dense[row])
        filters.assert_dense(channels, learner.belief, dense)


def beliefs_along(observed: list[Observation]) -> list[Belief]:
    learner, beliefs = fresh(), []
    for item in observed:
        learner.observe(item)
        beliefs.append(copied(learner.belief))
    return beliefs


def changed(part: str, item: Observation) -> Observation:
    """Returns an observation in which learner 2 observes something else."""
    value = getattr(item, part)
    return item._replace(**{part: value + 0.3 * (torch.arange(LEARNERS) == 2)[:, None]})


@pytest.mark.parametrize("part", ["observation", "control"])
def test_an_observation_changes_its_learner_from_then_on_and_nothing_before(part: str):
    observed = list(transitions(fresh(), 8))
    other = [changed(part, item) if time == 5 else item for time, item in enumerate(observed)]
    pairs = zip(beliefs_along(observed), beliefs_along(other), strict=True)
    for time, (before, after) in enumerate(pairs):
        same = torch.arange(LEARNERS) != 2 if time >= 5 else torch.ones(LEARNERS).bool()
        assert torch.equal(before.mean[same], after.mean[same])
        assert (before.mean[~same] != after.mean[~same]).any(1).all()


# What is known of the field.


def weights_of(learner: BayesFilterLearner) -> Tensor:
    return learner.belief.mean[:, D:].unflatten(1, (D, -1))


def blocks_of(learner: BayesFilterLearner) -> Tensor:
    """Returns P_ww,ii by slices."""
    count, covariance = learner.filter.rbf.size, learner.belief.covariance
    cuts = [slice(D + i * count, D + (i + 1) * count) for i in range(D)]
    return torch.stack([covariance[:, cut, cut] for cut in cuts], 1)


def test_moments_of_the_field_by_brute_force():
    learner, x = experienced(), drawn(LEARNERS, 4, D)
    moments, blocks = learner.moments(x), blocks_of(learner)
    for row, point, i in np.ndindex(LEARNERS, 4, D):
        features = learner.filter.rbf.features(x[row, point])
        mean, variance = weights_of(learner)[row, i] @ features, blocks[row, i] @ features
        torch.testing.assert_close(moments.mean[row, point, i], mean)
        torch.testing.assert_close(moments.variance[row, point, i], features @ variance)
    drift = learner.drift(learner.weights, x.float())
    torch.testing.assert_close(drift.double(), moments.mean, rtol=1e-4, atol=1e-5)


# What a planner uses.


def test_a_surrogate_is_the_belief_in_single_precision():
    learner, x = experienced(), drawn(LEARNERS, 5, D).float()
    surrogate, blocks = learner.surrogate(slice(0, LEARNERS)), blocks_of(learner)
    assert (surrogate.dt, surrogate.region_radius, surrogate.members) == (0.1, 1.5, None)
    assert torch.equal(surrogate.control, torch.tensor(CONTROL))
    grid = learner.filter.rbf.features(region_grid(1.5, D).double())
    expected = {
        "state": learner.belief.mean[:, :D],
        "covariance": (blocks[:, 0] + blocks[:, 1]) / 2,
        "full_covariance": learner.belief.covariance[:, D:, D:],
        "region": sum(torch.outer(point, point) for point in grid) / len(grid),
    }
    for name, value in expected.items():
        assert getattr(surrogate, name).dtype == torch.float32
        torch.testing.assert_close(getattr(surrogate, name).double(), value, rtol=1e-5, atol=1e-6)
    value, features = surrogate.field(x)
    torch.testing.assert_close(
        value.double(), learner.moments(x.double()).mean, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(features, learner.filter.rbf.features(x.double()).float())
    slopes = torch.autograd.functional.jacobian(
        lambda at: surrogate.field(at).value.sum((0, 1)), x
    ).permute(1, 2, 0, 3)
    torch.testing.assert_close(surrogate.jacobian(x), slopes, rtol=1e-3, atol=1e-4)


def learned_channels() -> LearnedChannels:
    """Returns channels that differ between learners."""
    weight, bias = 0.5 * drawn(LEARNERS, CHANNELS, D, seed=1), 0.1 * drawn(LEARNERS, CHANNELS)
    return LearnedChannels(weight, bias, 0.01 + 0.02 * drawn(LEARNERS, CHANNELS, seed=3).square())


@pytest.mark.parametrize("channels", ["linear", "counts", "learned"])
def test_a_surrogate_of_some_learners_has_their_noise_and_precision(channels: str):
    learner = experienced("counts" if channels == "counts" else "linear")
    if channels == "learned":
        learner.filter = learner.filter._replace(emission=learned_channels())
    some = learner.surrogate(slice(2, 5))
    emission = learner.emission.double()
    assert torch.equal(some.state, learner.belief.mean[2:5, :D].float())
    assert torch.equal(some.covariance, blocks_of(learner).mean(1)[2:5].float())
    x = drawn(LEARNERS, 4, D)
    torch.testing.assert_close(
        some.field(x[2:5].float()).value.double(),
        learner.moments(x).mean[2:5],
        rtol=1e-4,
        atol=1e-5,
    )
    for place, row in enumerate(range(2, 5)):
        state = learner.belief.mean[row, :D]
        slope, variance = emission.jacobian(state), emission.variance(state)
        if channels == "learned":
            slope, _, variance = (part[row] for part in learned_channels())
        precision = slope.T @ torch.diag(1 / variance) @ slope
        torch.testing.assert_close(some.precision[place].double(), precision, rtol=1e-5, atol=1e-4)
        unknown = float(torch.linalg.inv(precision).diagonal().mean())
        assert float(some.step_variance[place]) == pytest.approx(0.01 * 0.1 + unknown, rel=1e-5)


def test_dimensions_that_no_channel_shows_add_nothing_to_the_noise_of_a_surrogate():
    dataset = collected()
    blind = dataset.emission._replace(weight=dataset.emission.weight * np.array([1, 0], np.float32))
    surrogate = fresh(dataset=dataset._replace(emission=blind)).surrogate(slice(0, LEARNERS))
    precision = (blind.weight[:, 0] ** 2 / blind.noise_variance).sum()
    assert not surrogate.precision[:, 1].any()
    expected = torch.full((LEARNERS,), float(0.001 + 1 / precision / 2))
    torch.testing.assert_close(surrogate.step_variance, expected)


# Held-out rollouts.


def plain_frozen(
    inputs: Filter, rollouts: Rollouts, u: Tensor, drift: Callable[[Tensor], Tensor]
) -> Tensor:
    """Computes the score one rollout after the other, with the field's slopes by autograd."""
    channels, surprises = inputs.emission, []
    noise = filters.process_noise(D, D, inputs.process_noise)
    nothing = Dense(torch.zeros(D).double(), torch.eye(D).double() / 3)
    for number in range(len(u)):
        y, next_y = (
            torch.tensor(part[number]).double()
            for part in (rollouts.observations, rollouts.next_observations)
        )
        belief = filters.corrected(channels, y[0], nothing)
        for time, push in enumerate(u[number]):
            ahead = filters.predicted(
                lambda x, push=push: x + (drift(x) + push) * inputs.dt, noise, belief
            )
            belief = filters.corrected(channels, next_y[time], ahead)
            surprises.append(belief.nll)
            if rollouts.truncated[number, time]:
                belief = filters.corrected(channels, y[time + 1], nothing)
    return torch.stack(surprises).mean()


@pytest.mark.parametrize("channels", ["linear", "counts", "learned"])
def test_held_out_scores_are_those_of_a_plain_filter_of_each_rollout(channels: str):
    observed = "counts" if channels == "counts" else "linear"
    learner, held_out = experienced(observed), collected(observed, 5).held_out
    rollouts = Rollouts(*(part[:2, :9] for part in held_out.rollouts))
    rollouts = rollouts._replace(actions=rollouts.actions[:, :8])
    assert rollouts.truncated[:, :8].any(0).sum() == 1
    u = torch.tensor(rollouts.actions).double() @ torch.tensor(CONTROL).double().T
    weights, functions = learner.weights["weight"].double(), learner.filter.rbf
    by_learner = [learner.emission.double()] * LEARNERS
    if channels == "learned":
        learned = learned_channels()
        inputs = learner.filter._replace(emission=learned)
        scores = frozen_innovation(
            inputs, lambda x: functions.features(x) @ weights.mT, rollouts, u, LEARNERS
        )
        by_learner = [
            item._replace(weight=weight, bias=bias, noise_variance=variance)
            for item, weight, bias, variance in zip(by_learner, *learned, strict=True)
        ]
    else:
        scores = learner.evaluate(held_out._replace(rollouts=rollouts), 0)["innovation_nll"]
    for row in (0, 1, 4):
        alone = learner.filter._replace(emission=by_learner[row])
        expected = plain_frozen(
            alone, rollouts, u, lambda x, row=row: weights[row] @ functions.features(x)
        )
        torch.testing.assert_close(scores[row], expected, rtol=1e-5, atol=1e-6)
