"""Radial basis functions and their prior: plain formulas, autograd, numbers of the default grid."""

import math
from itertools import product

import pytest
import torch
from torch import Generator

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.config import RbfGrid
from quatrain.models.active_dynamics.network import Rbf, make_rbf, prior_weight_variance
from tests.conftest import params_with
from tests.models.active_dynamics.filters import drawn

SIDES = {1: 7, 2: 5, 3: 3}
"""Centres along an axis, by dimensions."""


def double(d: int) -> Rbf:
    config = RbfGrid(side=SIDES[d], range=1.8, length=0.7, prior_field_sd=1.3)
    return make_rbf(config, d).to(torch.float64)


@pytest.mark.parametrize("d", SIDES)
def test_features_are_the_plain_formula_and_derivatives_those_of_autograd(d: int):
    """The first coordinate of the centres changes slowest; the states stay as they are."""
    rbf, x = double(d), drawn(6, d)
    axis = [1.8 * (2 * place / (SIDES[d] - 1) - 1) for place in range(SIDES[d])]
    plain = [
        [
            math.exp(-(math.dist(state, centre) ** 2) / (2 * 0.7**2))
            for centre in product(axis, repeat=d)
        ]
        for state in x.tolist()
    ]
    features, derivatives = rbf.with_derivatives(x)
    torch.testing.assert_close(rbf.features(x), torch.tensor(plain).double(), atol=1e-6, rtol=0)
    assert torch.equal(features, rbf.features(x))
    assert torch.equal(x, drawn(6, d))
    for row in range(6):
        exact = torch.autograd.functional.jacobian(rbf.features, x[row])
        torch.testing.assert_close(derivatives[row], exact, rtol=1e-10, atol=1e-14)


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
