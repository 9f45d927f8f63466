"""belief, action, next observation -> next belief about state and weights, and its innovation.

An extended Kalman filter of s = [x; vec W] (weight (i, c) of f_i = Σ_c W_ic φ_c at d + i·C + c) in
information form: channels enter only as d x d matrices, so that their number costs nothing once
these are computed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.bayes_filter.channels import Channels
from quatrain.models.active_dynamics.bayes_filter.linear_algebra import (
    eigh_psd,
    inverse_roots,
    matvec,
    sqrt_psd,
)
from quatrain.models.active_dynamics.bayes_filter.nonlinear import update_nonlinear
from quatrain.models.active_dynamics.network import Rbf

# Variance of U(-1, 1), the distribution of each dimension of a first state.
START_VARIANCE = 1 / 3
# Distance of the states of a central difference: a field may be in single precision.
DIFFERENCE = 1e-3


class Belief(NamedTuple):
    """Holds mean and covariance of [x; vec W]."""

    mean: Float64[Tensor, "learner n"]
    covariance: Float64[Tensor, "learner n n"]


class Filter(NamedTuple):
    """Holds what is constant: features and channels, both in double precision."""

    rbf: Rbf
    emission: Channels
    dt: float
    process_noise: float

    @property
    def d(self) -> int:
        return self.rbf.d


def prior(rbf: Rbf, learners: int, weight_variance: float) -> Belief:
    """Returns a state from U(-1, 1) and independent weights around 0."""
    state_variance = torch.full((rbf.d,), START_VARIANCE)
    weight_variances = torch.full((rbf.d * rbf.size,), weight_variance)
    variance = torch.cat([state_variance, weight_variances]).double()
    mean = torch.zeros(learners, len(variance), dtype=torch.float64)
    return Belief(mean, torch.diag(variance).expand(learners, -1, -1).clone())


def state_prior(d: int, learners: int) -> Belief:
    variance = START_VARIANCE * torch.eye(d, dtype=torch.float64)
    mean = torch.zeros(learners, d, dtype=torch.float64)
    return Belief(mean, variance.repeat(learners, 1, 1))


def weights(d: int, belief: Belief) -> Float64[Tensor, "learner d feature"]:
    """Returns W as a view."""
    return belief.mean[:, d:].unflatten(1, (d, -1))


def weight_blocks(d: int, belief: Belief) -> Float64[Tensor, "learner d feature feature"]:
    """Returns P_ww,ii of each output i."""
    blocks = belief.covariance[:, d:, d:].unflatten(2, (d, -1)).unflatten(1, (d, -1))
    return torch.stack([blocks[:, i, :, i] for i in range(d)], 1)


def predict(filter: Filter, belief: Belief, u: Float64[Tensor, "learner d"]) -> None:
    """Moves the state by (W φ(x) + u) dt, in place.

    The covariance becomes F P Fᵀ + Q dt with F = [I + dt J, dt (I ⊗ φᵀ)].
    """
    d = filter.d
    dt = filter.dt
    mean, covariance = belief
    features, derivatives = filter.rbf.with_derivatives(mean[:, :d])
    weight = weights(d, belief)
    identity = torch.eye(d, dtype=mean.dtype, device=mean.device)
    state_jacobian = identity + dt * (weight @ derivatives)

    # The rows of F P that belong to the state; blocks of P are multiplied by φ per output.
    by_output = covariance[:, d:].unflatten(1, (d, -1))
    from_weights = torch.matmul(features[:, None, None], by_output).squeeze(2)
    predicted = state_jacobian @ covariance[:, :d] + dt * from_weights
    cross = predicted[..., d:]
    by_features = torch.matmul(cross.unflatten(2, (d, -1)), features[:, None, :, None])
    state = predicted[..., :d] @ state_jacobian.mT + dt * by_features[..., 0]

    mean[:, :d] += dt * (matvec(weight, features) + u)
    covariance[:, :d, :d] = (state + state.mT) / 2 + filter.process_noise * dt * identity
    covariance[:, :d, d:] = cross
    covariance[:, d:, :d] = cross.mT


def predict_state(
    filter: Filter,
    belief: Belief,
    drift: Callable[[Tensor], Tensor],
    u: Float64[Tensor, "learner d"],
) -> None:
    """Moves a belief about states alone by (f(x) + u) dt, in place; f' is a central difference."""
    mean, covariance = belief
    identity = torch.eye(filter.d, dtype=mean.dtype, device=mean.device)
    offsets = DIFFERENCE * identity
    differences = [drift(mean + offset) - drift(mean - offset) for offset in offsets]
    state_jacobian = identity + filter.dt * (torch.stack(differences, 2) / (2 * DIFFERENCE))
    mean += filter.dt * (drift(mean) + u)
    noise = filter.process_noise * filter.dt * offsets / DIFFERENCE
    covariance.copy_(state_jacobian @ covariance @ state_jacobian.mT + noise)


def correct(
    filter: Filter, belief: Belief, y: Float64[Tensor, "learner obs"]
) -> Float64[Tensor, " learner"]:
    """Conditions the belief on an observation, in place.

    Returns: -log N(y - h(x); 0, H P_xx Hᵀ + R) per channel, of the belief before.
    """
    emission = filter.emission
    x = belief.mean[:, : filter.d].clone()
    state_covariance = belief.covariance[:, : filter.d, : filter.d]
    nll = losses.innovation_nll(emission, x, state_covariance, y)
    if emission.kind == "loglinear":
        update_nonlinear(emission, *belief, y)
    else:
        precision = emission.precision(x).expand_as(state_covariance)
        _update_linear(belief, precision, emission.information_vector(y, x))
    return nll


def restart(
    filter: Filter,
    belief: Belief,
    ended: Bool[Tensor, " learner"],
    y: Float64[Tensor, "learner obs"],
) -> None:
    """Resets the state where an episode ended, in place, and conditions it on y.

    y is the first observation of the next episode. The belief about the weights is kept.
    """
    if ended.is_cpu and not ended.any():  # on a GPU this question would wait for the device
        return
    d = filter.d
    identity = torch.eye(d, dtype=y.dtype, device=y.device)
    restarted = Belief(*(part.clone() for part in belief))
    restarted.mean[:, :d] = 0
    restarted.covariance[:, :d] = 0
    restarted.covariance[..., :d] = 0
    restarted.covariance[:, :d, :d] = START_VARIANCE * identity
    correct(filter, restarted, y)
    for current, new in zip(belief, restarted, strict=True):
        where = ended.view(-1, *[1] * (current.ndim - 1))
        current.copy_(torch.where(where, new, current))


def standardized_innovation(
    filter: Filter, belief: Belief, y: Float64[Tensor, "learner obs"]
) -> Float64[Tensor, "learner d"]:
    """Computes (Λ + Λ P_xx Λ)^-½ η of η = Hᵀ R⁻¹ (y - h(x_p)): N(0, I) if the filter is right.

    Only what channels say of the state counts, not their noise beside it. Directions that no
    channel shows are 0.
    """
    d = filter.d
    x = belief.mean[:, :d]
    covariance = belief.covariance[:, :d, :d]
    precision = filter.emission.precision(x).expand_as(covariance)
    values, vectors = eigh_psd(precision + precision @ covariance @ precision)
    rotated = matvec(vectors.mT, filter.emission.information_vector(y, x))
    return matvec(vectors, inverse_roots(values) * rotated)


def _update_linear(
    belief: Belief,
    precision: Float64[Tensor, "learner d d"],
    information_vector: Float64[Tensor, "learner d"],
) -> None:
    """Conditions the belief on an observation, in place.

    precision: Λ. information_vector: η = Hᵀ R⁻¹ (y - h(x_p)).
    """
    d = precision.shape[-1]
    mean, covariance = belief
    columns = covariance[..., :d]
    identity = torch.eye(d, dtype=mean.dtype, device=mean.device)
    damped = identity + precision @ covariance[:, :d, :d]
    root = columns @ sqrt_psd(torch.linalg.solve(damped, precision))
    mean += matvec(columns, torch.linalg.solve(damped, information_vector))
    covariance.baddbmm_(root, root.mT, alpha=-1)
