"""Radial basis functions and their prior: plain formulas, automatic derivatives, the numbers of the
default grid.
"""

import math
from itertools import product

import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.config import RbfGrid
from quatrain.models.active_dynamics.network import (
    Rbf,
    make_rbf,
    prior_weight_variance,
    region_products,
)
from tests.conftest import params_with

SIDES = {1: 7, 2: 5, 3: 3}
"""Centres along an axis, by dimensions."""


def grid_of(d: int) -> RbfGrid:
    return RbfGrid(side=SIDES[d], range=1.8, length=0.7, prior_field_sd=1.3)


def double(d: int) -> Rbf:
    return make_rbf(grid_of(d), d).to(torch.float64)


def states(*shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=Generator().manual_seed(0), dtype=torch.float64)


def plain(x: Tensor) -> list[float]:
    """Feature by feature, of one state; the last coordinate of the centres changes fastest."""
    d, result = len(x), []
    axis = [1.8 * (2 * place / (SIDES[d] - 1) - 1) for place in range(SIDES[d])]
    for centre in product(axis, repeat=d):
        square = sum((float(x[k]) - centre[k]) ** 2 for k in range(d))
        result.append(math.exp(-square / (2 * 0.7**2)))
    return result


@pytest.mark.parametrize("d", SIDES)
def test_features_are_the_plain_formula_in_the_order_of_the_grid(d: int):
    x = states(6, d)
    result = double(d).features(x)
    assert result.shape == (6, SIDES[d] ** d)
    torch.testing.assert_close(
        result, torch.tensor([plain(item) for item in x], dtype=torch.float64), atol=1e-7, rtol=0
    )


def test_the_first_coordinate_of_centres_changes_slowest():
    rbf = double(2)
    at_centre = rbf.features(torch.stack([rbf.axis[1], rbf.axis[4]]))
    assert at_centre.argmax() == 1 * 5 + 4
    assert at_centre.max() == 1


def test_features_of_single_precision_are_those_of_double():
    rbf = make_rbf(grid_of(2), 2)
    x = states(4, 3, 2)
    result = rbf.features(x.float())
    assert result.dtype == torch.float32
    torch.testing.assert_close(
        result.double(), rbf.to(torch.float64).features(x), atol=1e-5, rtol=0
    )


def test_a_state_alone_and_batches_of_batches_have_the_same_features():
    rbf, x = double(2), states(4, 3, 2)
    whole = rbf.features(x)
    assert whole.shape == (4, 3, 25)
    torch.testing.assert_close(whole[2, 1], rbf.features(x[2, 1]))


def test_features_leave_the_state_as_it_is():
    rbf, x = double(2), states(4, 2)
    before = x.clone()
    rbf.features(x)
    rbf.with_derivatives(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("d", SIDES)
def test_derivatives_are_those_of_autograd(d: int):
    rbf, x = double(d), states(4, d) / 3
    result = rbf.with_derivatives(x)
    assert torch.equal(result.features, rbf.features(x))
    for row in range(4):
        expected = torch.autograd.functional.jacobian(rbf.features, x[row])
        torch.testing.assert_close(result.derivatives[row], expected, rtol=1e-10, atol=1e-14)


def test_gradients_flow_through_features_and_through_their_derivatives():
    rbf, x = double(2), states(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(rbf.features, x)
    assert torch.autograd.gradcheck(lambda at: rbf.with_derivatives(at).derivatives, x)
    assert torch.autograd.gradgradcheck(rbf.features, x)


def default_grid() -> RbfGrid:
    return params_with({}).active_dynamics.network.rbf


def test_the_default_grid_has_81_functions_and_a_prior_variance_of_2217():
    rbf = make_rbf(default_grid(), 2)
    assert rbf.size == 81
    assert prior_weight_variance(rbf, region_grid(1.5, 2), 1.0) == pytest.approx(0.2217, abs=5e-5)


def test_fields_drawn_from_the_prior_have_its_deviation_over_the_region():
    """10,000 fields: their mean square is known to about 1 %."""
    rbf, grid = make_rbf(default_grid(), 2), region_grid(1.5, 2)
    variance = prior_weight_variance(rbf, grid, 1.3)
    weights = variance**0.5 * torch.randn(10_000, 81, generator=Generator().manual_seed(1))
    fields = weights @ rbf.features(grid).T
    assert float(fields.square().mean().sqrt()) == pytest.approx(1.3, rel=0.02)


def test_region_products_are_the_mean_of_outer_products():
    features = torch.rand(9, 4, generator=Generator().manual_seed(2))
    expected = sum(torch.outer(item, item) for item in features) / 9
    torch.testing.assert_close(region_products(features), expected)
