"""The filter of states and weights: worked numbers, dense algebra, long runs, new episodes."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import Emission
from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.network import make_rbf, prior_weight_variance
from tests.conftest import params_with, shapes_unchecked
from tests.models.active_dynamics import filters

LEARNERS, D = 4, 2
OBSERVED: dict[str, tuple[str, str, int, int]] = {
    "identity": ("identity", "gaussian", 2, 2),
    "linear": ("linear", "gaussian", 5, 2),
    "fewer channels than dimensions": ("linear", "gaussian", 2, 3),
    "loglinear": ("loglinear", "gaussian", 5, 2),
    "one loglinear channel": ("loglinear", "gaussian", 1, 2),
    "counts": ("loglinear", "poisson", 7, 2),
}
"""Kind of channels, of their noise, their number, dimensions."""


def observations(channels: Emission, learners: int, seed: int) -> Tensor:
    """Returns observations of states near 0."""
    generator = Generator().manual_seed(seed)
    d = channels.weight.shape[1]
    x = torch.rand(learners, d, generator=generator, dtype=torch.float64) - 0.5
    return channels.sample(x, None, generator)


@pytest.mark.parametrize("case", OBSERVED)
def test_it_is_the_dense_extended_kalman_filter(case: str):
    """After each time the state of another learner is forgotten, but not its weights."""
    channels = filters.emission(*OBSERVED[case])
    d = channels.weight.shape[1]
    size = d + d * 3**d
    inputs, belief = filters.filter_of(channels), filters.some_belief(LEARNERS, size)
    dense = [filters.dense_of(belief, learner) for learner in range(LEARNERS)]
    noise = filters.process_noise(d, size)
    for time in range(3):
        u, y = filters.drawn(LEARNERS, d, seed=time), observations(channels, LEARNERS, time)
        inputs.predict(belief, u)
        nll = inputs.correct(belief, y)
        for learner in range(LEARNERS):
            step = filters.joint_step(inputs.rbf, u[learner])
            ahead = filters.predicted(step, noise, dense[learner])
            dense[learner] = filters.corrected(channels, y[learner], ahead)
        inputs.restart(belief, torch.arange(LEARNERS) == time, y)
        dense[time] = filters.restarted(channels, y[time], dense[time])
        near = 3e-5 if channels.kind == "loglinear" else 1e-9  # how near the mode a search comes
        for part, exact in zip((*belief, nll), zip(*dense, strict=True), strict=True):
            torch.testing.assert_close(part, torch.stack(exact), rtol=near, atol=near)


def steep(noise: Any, noise_sd: float, weight_sd: float, obs: int) -> Emission:
    weight = weight_sd * filters.drawn(obs, D, seed=obs)
    bias = 0.1 * filters.drawn(obs, seed=obs + 1)
    variance = torch.full((obs,), noise_sd**2, dtype=torch.float64)
    return Emission("loglinear", noise, weight, bias, variance)


NOISE = [("gaussian", 0.1), ("gaussian", 1e-3), ("poisson", 0.0)]


@pytest.mark.parametrize(("weight_sd", "obs"), [(0.5, 50), (2.0, 7)])
@pytest.mark.parametrize(("noise", "noise_sd"), NOISE)
def test_a_first_state_is_within_its_deviation_of_the_true_one(
    noise: str, noise_sd: float, weight_sd: float, obs: int
):
    """With channels that change up to a thousandfold over U(-1, 1)."""
    count, draws = 1500, Generator().manual_seed(obs)
    channels = steep(noise, noise_sd, weight_sd, obs)
    x = 2 * torch.rand(count, D, generator=draws, dtype=torch.float64) - 1
    belief = bayes.state_prior(D, count)
    filters.filter_of(channels).correct(belief, channels.sample(x, None, draws))
    assert (torch.linalg.eigvalsh(belief.covariance) > 0).all()
    deviation = belief.covariance.diagonal(dim1=1, dim2=2).sqrt()
    assert ((belief.mean - x).abs() < 5 * deviation).all(1).double().mean() > 0.99
    assert ((belief.mean - x).abs() < deviation).double().mean() > 0.55


def test_a_dimension_that_is_certain_stays_with_nonlinear_channels():
    inputs = filters.filter_of(filters.emission("loglinear"))
    belief = filters.some_belief(2, D + D * 9)
    belief.covariance[:, 0], belief.covariance[..., 0] = 0, 0
    belief.covariance[1, 1], belief.covariance[1, :, 1] = 0, 0
    before = bayes.Belief(*(part.clone() for part in belief))
    inputs.correct(belief, observations(inputs.emission, 2, 3))
    assert torch.equal(belief.mean[1], before.mean[1])
    assert torch.equal(belief.mean[0, 0], before.mean[0, 0])
    assert (belief.mean[0, 1:] != before.mean[0, 1:]).all()
    assert 0 < belief.covariance[0, 1, 1] < before.covariance[0, 1, 1]


def test_covariances_stay_symmetric_and_positive_definite():
    inputs, draws = filters.filter_of(filters.emission(obs=3)), Generator().manual_seed(1)
    belief = bayes.prior(inputs.rbf, 2, 0.4)
    x = torch.zeros(2, D, dtype=torch.float64)
    with shapes_unchecked():
        for time in range(500):
            u = 2 * torch.rand(2, D, generator=draws, dtype=torch.float64) - 1
            turning = x * (1 - x.square().sum(1, keepdim=True)) + x.flip(1) * x.new([-1, 1])
            noise = 0.05 * torch.randn(2, D, generator=draws, dtype=torch.float64)
            x = x + (turning + u) * filters.DT + noise
            inputs.predict(belief, u)
            inputs.correct(belief, inputs.emission.sample(x, None, draws))
            ended = torch.tensor([time % 130 == 129, time % 170 == 169])
            x = torch.where(ended[:, None], 0.5, x)
            inputs.restart(belief, ended, inputs.emission.sample(x, None, draws))
            if time % 50 == 49:
                difference = (belief.covariance - belief.covariance.mT).abs().max()
                assert difference < 1e-14 * belief.covariance.abs().max()
                assert torch.linalg.eigvalsh(belief.covariance).min() > 1e-7
    assert belief.mean.isfinite().all()


# Radial basis functions, of the default grid.


def test_fields_drawn_from_the_prior_have_its_deviation_over_the_region():
    """Of 10,000 fields the mean square is known to about 1 %."""
    rbf = make_rbf(params_with({}).active_dynamics.network.rbf, 2)
    grid = region_grid(1.5, 2)
    assert rbf.size == 81
    assert prior_weight_variance(rbf, grid, 1.0) == pytest.approx(0.2217, abs=5e-5)
    deviation = prior_weight_variance(rbf, grid, 1.3) ** 0.5
    weights = deviation * torch.randn(10_000, 81, generator=Generator().manual_seed(1))
    fields = weights @ rbf.features(grid).T
    assert float(fields.square().mean().sqrt()) == pytest.approx(1.3, rel=0.02)
