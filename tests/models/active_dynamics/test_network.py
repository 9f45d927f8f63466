"""Radial basis functions of the default grid, and their prior; `test_filter` has their formula."""

import pytest
import torch
from torch import Generator

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.network import make_rbf, prior_weight_variance
from tests.conftest import params_with


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
