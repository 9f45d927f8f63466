"""dataset, config -> scores that need no learner: what a field scores that knows nothing, or all"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field.world import World
from quatrain.models.active_dynamics.bayes_filter.filter import KalmanFilter
from quatrain.models.active_dynamics.bayes_filter.innovation import (
    expected_intervals,
    frozen_innovation,
)
from quatrain.models.active_dynamics.collect import Dataset, HeldOut
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.network import make_rbf, prior_weight_variance

# Error of an affine fit up to which the true field counts as affine.
LARGEST_EXACT = 1e-3
# Least variance of an observed velocity.
LEAST_NOISE = 1e-12


def reference_errors(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, float]:
    """Computes relative errors of the zero field, of the best affine and RBF fields, and of a
    learner that teleports.

    If the true field is affine, the best affine field is no reference and its error counts as 1.
    """
    grid = dataset.held_out.grid.astype(float)
    truth = dataset.held_out.grid_field.astype(float)
    affine = _fit_error(np.column_stack([grid, np.ones(len(grid))]), truth)
    projection, teleport = 0.0, 0.0
    if config.network.uses_rbf:
        rbf = make_rbf(config.network.rbf, config.env.d)
        features = rbf.features(torch.tensor(dataset.held_out.grid).double())
        projection = _fit_error(features.numpy(force=True), truth)
        teleport = teleport_reference(config, dataset.held_out)
    return {
        "zero_field": 1.0,
        "affine_field": affine if affine > LARGEST_EXACT else 1.0,
        "projection_floor": projection,
        "teleport_reference": teleport,
    }


def teleport_reference(config: ActiveDynamicsConfig, held_out: HeldOut) -> float:
    """Computes the error of a learner that is put in any state, and sees exactly where that leads.

    It is one strong design, no bound: states are spread evenly over the grid of the region, and a
    better spread, or a field that suits the prior, errs less. It sees as many transitions as the
    others, as velocities with the variance q = Q / dt of process noise, which it knows. Its weights
    are those of regression, W = ΣΦᵀy/q with Σ⁻¹ = ΦᵀΦ/q + I/s_w², and the squared error is the
    expected one,

        |ΦΣΦᵀf/q - f|² + d tr(ΦΣΦᵀΦΣΦᵀ)/q
    """
    grid = torch.tensor(held_out.grid).double()
    truth = torch.tensor(held_out.grid_field).double()
    rbf = make_rbf(config.network.rbf, config.env.d).to(torch.float64)
    prior = prior_weight_variance(rbf, grid, config.network.rbf.prior_field_sd)
    features = rbf.features(grid)
    visits = config.train.transitions / len(grid)
    noise = max(config.env.process_noise / config.env.dt, LEAST_NOISE) / visits
    precision = features.mT @ features / noise
    precision.diagonal().add_(1 / prior)
    gains = features @ torch.linalg.solve(precision, features.mT) / noise
    bias = (gains @ truth - truth).square().sum()
    variance = config.env.d * noise * gains.square().sum()
    return float(((bias + variance) / truth.square().sum()).sqrt())


def oracle(config: ActiveDynamicsConfig, world: World, held_out: HeldOut) -> dict[str, float]:
    """Computes the innovation on held-out rollouts of a filter with true field and channels.

    `..._expected_low`, `..._expected_high`: see `expected_intervals`.
    """
    rbf = make_rbf(config.network.rbf, config.env.d)
    env = config.env
    kalman = KalmanFilter(rbf, world.emission.double(), env.dt, env.process_noise)
    u = torch.tensor(held_out.rollouts.actions).double() @ world.control.T.double()

    def field(x: Tensor) -> Tensor:
        return world.field(x.float()).double()  # a user's function may need single precision

    fit = frozen_innovation(kalman, field, held_out.rollouts, u, 1)
    scores = {f"{name}_oracle": float(value) for name, value in fit._asdict().items()}
    return scores | expected_intervals(held_out.rollouts, config.env.d)


def _fit_error(
    columns: Float[np.ndarray, "point column"], truth: Float[np.ndarray, "point d"]
) -> float:
    fit = columns @ np.linalg.lstsq(columns, truth, rcond=None)[0]
    return float(np.sqrt(((fit - truth) ** 2).sum() / (truth**2).sum()))
