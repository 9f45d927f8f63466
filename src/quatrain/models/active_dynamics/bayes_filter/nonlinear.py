"""belief, observation of nonlinear channels (h = exp) -> the belief around the mode

The mean moves to the mode of -ln p(y|x) + ½ (x - x_p)ᵀ P_xx⁻¹ (x - x_p) by Gauss-Newton steps with
a line search, and the covariance is that of h linearised there.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from quatrain.envs.vector_field.observation import SMALLEST_RATE, Emission
from quatrain.models.active_dynamics.bayes_filter.linear_algebra import (
    eigh_psd,
    inverse_roots,
    matvec,
)

# Gauss-Newton steps towards the mode of nonlinear channels.
ITERATIONS = 8
# Lengths that the line search tries, in units of the full Gauss-Newton step.
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)
# Lower bound of counts before the logarithm.
LEAST_COUNT = 0.5


def update_nonlinear(
    emission: Emission,
    mean: Float64[Tensor, "learner n"],
    covariance: Float64[Tensor, "learner n n"],
    y: Float64[Tensor, "learner obs"],
) -> None:
    """Conditions mean and covariance on an observation, in place.

    The coordinates are b of s = s_p + G b, whose prior is N(0, I). No covariance of the state is
    inverted or subtracted. G = P_:x U v^-½ for P_xx = U diag(v) Uᵀ, and G_x G_xᵀ = P_xx for the
    rows G_x of the state.
    """
    d = emission.weight.shape[1]
    values, vectors = torch.linalg.eigh(covariance[:, :d, :d])
    basis = covariance[..., :d] @ (vectors * inverse_roots(values)[:, None])
    state_basis = basis[:, :d].clone()
    x = mean[:, :d].clone()

    mode = _find_mode(emission, x, state_basis, y)
    precision = emission.precision(x + matvec(state_basis, mode))
    gains, directions = eigh_psd(state_basis.mT @ precision @ state_basis)
    mean += matvec(basis, mode)

    rotated = basis @ directions
    removed = rotated * (gains / (1 + gains)).sqrt()[:, None]
    covariance.baddbmm_(removed, removed.mT, alpha=-1)
    # The blocks of the state are computed without cancellation.
    remaining = (rotated / (1 + gains)[:, None]) @ rotated[:, :d].mT
    covariance[..., :d] = remaining
    covariance[:, :d] = remaining.mT


def _find_mode(
    emission: Emission,
    x: Float64[Tensor, "learner d"],
    basis: Float64[Tensor, "learner d d"],
    y: Float64[Tensor, "learner obs"],
) -> Float64[Tensor, "learner d"]:
    """Finds argmin_b of -ln p(y | x + G_x b) + ½|b|² by Gauss-Newton steps with a line search."""
    lengths = torch.tensor(STEP_LENGTHS, dtype=y.dtype, device=y.device)[:, None]
    precision, information_vector = _first_linearisation(emission, x, y)
    mode = torch.zeros_like(x)
    for _ in range(ITERATIONS):
        # The full step leads to (I + G_xᵀ Λ G_x)⁻¹ G_xᵀ η.
        gains, directions = eigh_psd(basis.mT @ precision @ basis)
        rotated = matvec(directions.mT, matvec(basis.mT, information_vector))
        target = matvec(directions, rotated / (1 + gains))
        candidates = torch.lerp(mode[:, None], target[:, None], lengths)
        misfit = _misfit(emission, x[:, None] + candidates @ basis.mT, y[:, None])
        cost = misfit + candidates.square().sum(2) / 2
        best = cost.nan_to_num(nan=torch.inf).argmin(1)
        mode = candidates.take_along_dim(best[:, None, None], 1)[:, 0]
        shift = matvec(basis, mode)
        precision = emission.precision(x + shift)
        information_vector = emission.information_vector(y, x + shift) + matvec(precision, shift)
    return mode


def _first_linearisation(
    emission: Emission, x: Float64[Tensor, "learner d"], y: Float64[Tensor, "learner obs"]
) -> tuple[Float64[Tensor, "learner d d"], Float64[Tensor, "learner d"]]:
    """Returns Λ and η if ln y is the observation, with the noise it has where h = y.

    The first step then starts near states that explain y; from far away steps could end at other
    modes.
    """
    if emission.noise == "poisson":
        positive = torch.maximum(y, torch.full_like(y, LEAST_COUNT))
        certainty = positive
    else:
        positive = torch.maximum(y, emission.noise_variance.sqrt())
        certainty = positive.square() / emission.noise_variance
    weighted = certainty * (positive.log() - emission.bias - x @ emission.weight.T)
    precision = (emission.weight.T * certainty[:, None]) @ emission.weight
    return precision, weighted @ emission.weight


def _misfit(
    emission: Emission, x: Float64[Tensor, "learner n d"], y: Float64[Tensor, "learner 1 obs"]
) -> Float64[Tensor, "learner n"]:
    """Computes -ln p(y | x) up to a constant."""
    mean = emission.mean(x)
    if emission.noise == "poisson":
        rate = mean.clamp(min=SMALLEST_RATE)
        return (rate - y * rate.log()).sum(2)
    return ((y - mean).square() / emission.noise_variance).sum(2) / 2
