"""Observations of a state, and the information that they carry about it."""

from typing import Any

import pytest
import torch

from quatrain.envs.vector_field.world import Emission, draw_emission
from tests.envs.vector_field.worlds import gaussian, points, poisson
from tests.torch_numbers import seeded

KINDS = ("identity", "linear", "loglinear")


def emission(kind: Any = "linear", noise: Any = "gaussian", obs: int = 7, d: int = 2) -> Emission:
    """Returns channels with different variances."""
    channels = d if kind == "identity" else obs
    drawn = draw_emission(gaussian(kind, channels, noise=noise, noise_sd=0.3), d, seeded(0))
    if noise == "poisson":
        return drawn
    return drawn._replace(noise_variance=0.1 + torch.arange(channels) / 10)


ALL = [pytest.param(emission(kind), id=kind) for kind in KINDS] + [
    pytest.param(emission("loglinear", "poisson"), id="counts"),
    pytest.param(emission("linear", obs=1), id="fewer channels than dimensions"),
    pytest.param(emission("loglinear", d=3), id="three dimensions"),
]


def test_the_exponent_of_a_rate_stops_at_20():
    weight, far = torch.tensor([[1.0], [-1.0]]), torch.tensor([[500.0]])
    it = Emission("loglinear", "gaussian", weight, torch.zeros(2), torch.ones(2))
    mean = it.mean(torch.tensor([[19.0], [21.0], [500.0]]))
    torch.testing.assert_close(mean[:, 0], torch.tensor([19.0, 20.0, 20.0]).exp())
    assert it.precision(far).tolist() == [[[0]]]


@pytest.mark.parametrize("it", ALL)
def test_information_by_automatic_differentiation_and_dense_matrices(it: Emission):
    """Compares with Hᵀ R⁻¹ H and Hᵀ R⁻¹ (y - h), where R is the rate for counts."""
    it, (obs, d) = it.double(), it.weight.shape
    x, y = points(3, 5, d).double(), points(3, 5, obs, seed=2).double()
    precision, pull = it.precision(x), it.information_vector(y, x)
    assert (precision.shape, pull.shape) == ((3, 5, d, d), (3, 5, d))
    for at in ((i, j) for i in range(3) for j in range(5)):
        mean, jacobian = it.mean(x[at]), torch.autograd.functional.jacobian(it.mean, x[at])
        inverse = torch.diag(1 / (it.noise_variance if it.noise == "gaussian" else mean))
        torch.testing.assert_close(precision[at], jacobian.T @ inverse @ jacobian)
        torch.testing.assert_close(pull[at], jacobian.T @ inverse @ (y[at] - mean))


def test_gaussian_noise_is_of_the_given_draws_or_of_the_generator():
    it, x = emission(), points(1, 2).expand(20000, 2)
    draws, generator = torch.randn(20000, 7, generator=seeded(3)), seeded(9)
    y = it.sample(x, draws, generator)
    torch.testing.assert_close(y, it.mean(x) + draws * it.noise_variance.sqrt())
    assert torch.equal(generator.get_state(), seeded(9).get_state())
    y = it.sample(x, None, generator)
    residual = y - it.mean(x)
    assert residual.mean(0).abs().max() < 0.03
    torch.testing.assert_close(residual.var(0), it.noise_variance, rtol=0.06, atol=0)
    assert torch.equal(y, it.sample(x, None, seeded(9)))
    assert not torch.equal(y, it.sample(x, None, seeded(4)))


def test_counts_are_integers_whose_mean_and_variance_are_the_rate():
    """Noise added to the rate would have the mean 2 rate."""
    it, count = draw_emission(poisson(), 2, seeded(1)), 40000
    x = points(1, 2).expand(count, 2)
    y, rate = it.sample(x, None, seeded(2)), it.mean(x[0])
    assert torch.equal(y, y.round())
    assert y.min() >= 0
    assert ((y.mean(0) - rate).abs() < 5 * (rate / count).sqrt()).all()
    assert ((y.var(0) / rate - 1).abs() < 5 * ((2 + 1 / rate) / count).sqrt()).all()


def test_a_silent_channel_counts_next_to_nothing():
    bias = torch.tensor([-200.0, -15.0, 1.0])
    it = Emission("loglinear", "poisson", torch.zeros(3, 2), bias, torch.zeros(3))
    x = torch.zeros(1000, 2)
    assert it.sample(x, None, seeded(0))[:, :2].sum() <= 1
    assert it.precision(x).isfinite().all()
    assert it.information_vector(torch.ones(1000, 3), x).isfinite().all()


def test_weights_and_biases_have_the_specified_distribution():
    spec = gaussian("linear", 20000, noise_sd=0.2)
    drawn, same, other = (draw_emission(spec, 2, seeded(seed)) for seed in (4, 4, 5))
    assert drawn.weight.std().item() == pytest.approx(0.5, rel=0.02)
    assert drawn.bias.std().item() == pytest.approx(0.1, rel=0.03)
    assert drawn.weight.mean().abs() < 0.02
    assert drawn.noise_variance.tolist() == pytest.approx([0.04] * 20000)
    assert torch.equal(drawn.weight, same.weight)
    assert not torch.equal(drawn.weight, other.weight)
