"""Learners of bayes_filter: dense algebra, causality, what a planner uses, held-out scores."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import Emission, Transition
from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.filter import KalmanFilter, LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import Dataset, Rollouts, collect
from tests.conftest import small
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.filters import drawn

REPLICATES, CHANNELS, D, LEARNERS = 3, 7, 2, 6
SINGLE = {"rtol": 1e-4, "atol": 1e-5}
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
        network={
            "rbf": {"side": 4, "length": 1.1},
            "bayes_filter": {"process_noise": 0.01, "noise_sd": 0.1},
        },
        train={"acquisition": {"weights": {"fisher_a": 1.0}}},
    )


@cache
def collected(observed: str = "linear", episode: int | None = None) -> Dataset:
    return collect(configured(observed, episode), 3)


def fresh(observed: str = "linear", dataset: Dataset | None = None) -> BayesFilterLearner:
    seed = np.random.SeedSequence(0)
    return BayesFilterLearner.init(configured(observed), dataset or collected(observed), seed)


def transitions(
    learner: BayesFilterLearner, count: int, ends: dict[int, int] | None = None
) -> Iterator[Transition]:
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
        yield Transition(y, action, ended, first, torch.zeros(LEARNERS, 0))


def experienced(observed: str = "linear") -> BayesFilterLearner:
    learner = fresh(observed)
    for item in transitions(learner, 6, {4: 1}):
        learner.observe(item)
    return learner


# Learning. `test_filter` compares its steps with dense algebra.


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_transition_is_a_prediction_a_correction_and_perhaps_a_new_episode(observed: str):
    """Beginning with the prior and each replicate's first observation."""
    learner, first = fresh(observed), collected(observed).train.observations[:, 0]
    inputs = learner.filter
    belief = bayes.prior(inputs.rbf, LEARNERS, learner.weight_variance)
    inputs.correct(belief, torch.tensor(first).double().repeat(2, 1))
    assert filters.same(learner.belief, belief)
    for item in transitions(learner, 4, {2: 4}):
        u = (item.action @ torch.tensor(CONTROL).T).double()
        y, begins = item.observation.double(), item.start.double()
        inputs.predict(belief, u)
        nll = inputs.correct(belief, y)
        inputs.restart(belief, item.truncated, begins)
        torch.testing.assert_close(learner.observe(item).double(), nll, **SINGLE)
        assert filters.same(learner.belief, belief)


# What is known of the field.


def blocks_of(learner: BayesFilterLearner) -> Tensor:
    """Returns P_ww,ii by slices."""
    count, covariance = learner.filter.rbf.size, learner.belief.covariance
    cuts = [slice(D + i * count, D + (i + 1) * count) for i in range(D)]
    return torch.stack([covariance[:, cut, cut] for cut in cuts], 1)


def test_moments_of_the_field_by_brute_force():
    learner, x = experienced(), drawn(LEARNERS, 4, D)
    moments, blocks = learner.moments(x), blocks_of(learner)
    weights = learner.belief.mean[:, D:].unflatten(1, (D, -1))
    for row, point, i in np.ndindex(LEARNERS, 4, D):
        features = learner.filter.rbf.features(x[row, point])
        mean, variance = weights[row, i] @ features, blocks[row, i] @ features
        torch.testing.assert_close(moments.mean[row, point, i], mean)
        torch.testing.assert_close(moments.variance[row, point, i], features @ variance)
    drift = learner.drift(learner.weights, x.float())
    torch.testing.assert_close(drift.double(), moments.mean, **SINGLE)


# What a planner uses.


def test_a_surrogate_of_some_learners_is_their_belief_in_single_precision():
    learner, x, rows = experienced(), drawn(LEARNERS, 5, D).float(), slice(2, 5)
    surrogate, blocks = learner.surrogate(rows), blocks_of(learner)
    assert (surrogate.dt, surrogate.region_radius, surrogate.members) == (0.1, 1.5, None)
    assert torch.equal(surrogate.control, torch.tensor(CONTROL))
    grid = learner.filter.rbf.features(region_grid(1.5, D).double())
    expected = {
        "state": learner.belief.mean[rows, :D],
        "covariance": (blocks[rows, 0] + blocks[rows, 1]) / 2,
        "full_covariance": learner.belief.covariance[rows, D:, D:],
        "region": sum(torch.outer(point, point) for point in grid) / len(grid),
    }
    for name, value in expected.items():
        assert getattr(surrogate, name).dtype == torch.float32
        torch.testing.assert_close(getattr(surrogate, name).double(), value, **SINGLE)
    value, features = surrogate.field(x[rows])
    torch.testing.assert_close(value.double(), learner.moments(x.double()).mean[rows], **SINGLE)
    torch.testing.assert_close(features, learner.filter.rbf.features(x[rows].double()).float())
    slopes = torch.autograd.functional.jacobian(
        lambda at: surrogate.field(at).value.sum((0, 1)), x[rows]
    ).permute(1, 2, 0, 3)
    torch.testing.assert_close(surrogate.jacobian(x[rows]), slopes, rtol=1e-3, atol=1e-4)


def seeing(channels: str) -> BayesFilterLearner:
    """Returns learners; `learned` channels differ between them."""
    learner = experienced("counts" if channels == "counts" else "linear")
    if channels == "learned":
        weight, bias = 0.5 * drawn(LEARNERS, CHANNELS, D, seed=1), 0.1 * drawn(LEARNERS, CHANNELS)
        variance = 0.01 + 0.02 * drawn(LEARNERS, CHANNELS, seed=3).square()
        learned = LearnedChannels(weight, bias, variance)
        learner.filter = learner.filter._replace(emission=learned)
    return learner


def emission_of(learner: BayesFilterLearner, row: int) -> Emission:
    channels, emission = learner.filter.emission, learner.emission.double()
    if isinstance(channels, LearnedChannels):
        return emission._replace(**{name: part[row] for name, part in channels._asdict().items()})
    return emission


@pytest.mark.parametrize("channels", ["linear", "counts", "learned"])
def test_a_surrogate_of_some_learners_has_their_noise_and_precision(channels: str):
    learner = seeing(channels)
    some = learner.surrogate(slice(2, 5))
    for place, row in enumerate(range(2, 5)):
        emission, state = emission_of(learner, row), learner.belief.mean[row, :D]
        slope = torch.autograd.functional.jacobian(emission.mean, state)
        variance = emission.variance(state)
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


def plain_innovation(inputs: KalmanFilter, rollouts: Rollouts, weight: Tensor) -> Tensor:
    """Computes the score one rollout after the other, with the field's slopes by autograd."""
    surprises, effect = [], torch.tensor(CONTROL).double().T
    for y, next_y, actions, _, _, truncated in zip(*map(torch.tensor, rollouts), strict=True):
        fresh = [
            filters.corrected(inputs.emission, item, filters.nothing(D)) for item in y.double()
        ]
        restarts = {time: fresh[time + 1] for time in truncated.nonzero().flatten().tolist()}
        steps = actions.double() @ effect, next_y.double()
        surprises += filters.surprises(
            inputs, lambda x: weight @ inputs.rbf.features(x), fresh[0], steps, restarts
        )
    return torch.stack(surprises).mean()


@pytest.mark.parametrize("channels", ["linear", "counts", "learned"])
def test_held_out_scores_are_those_of_a_plain_filter_of_each_rollout(channels: str):
    learner = seeing(channels)
    held_out = collected("counts" if channels == "counts" else "linear", 5).held_out
    times = held_out.rollouts.transitions
    columns = (part[:2, : 8 + part.shape[1] - times] for part in held_out.rollouts)
    rollouts = Rollouts(*columns)
    assert rollouts.truncated.any(0).sum() == 1
    scores = learner.evaluate(held_out._replace(rollouts=rollouts), 0)["innovation_nll"]
    for row in (0, 1, 4):
        alone = learner.filter._replace(emission=emission_of(learner, row))
        expected = plain_innovation(alone, rollouts, learner.weights["weight"][row].double())
        torch.testing.assert_close(scores[row], expected, rtol=1e-5, atol=1e-6)
