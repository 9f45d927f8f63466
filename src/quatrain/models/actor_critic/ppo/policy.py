"""raw outputs of the actor -> a distribution over actions: samples, log-probabilities, entropy, KL
divergence

A policy draws a raw action z with one number for each active parameter; the other parameters are
constants. Draws are clamped away from the edges of the distribution first, so the same z is stored,
executed and scored. Log-probabilities and entropies are those of the executed action, low + (high −
low) unit, where unit is z itself (Beta) or sigmoid(z) (squashed Gaussian).

The parameters of a distribution are a pair of tensors: α and β of a Beta distribution, or mean and
log standard deviation of a Gaussian.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from quatrain.envs.colony.rules import PARAMETERS, Bounds

EDGE = 1e-5  # smallest distance of a drawn unit from 0 and 1
MAX_LOGIT = math.log((1 - EDGE) / EDGE)
CONCENTRATION_OFFSET = 1.5  # Beta: raw outputs of 0 give α = β = 1 + softplus(1.5) = 2.70
MAX_CONCENTRATION = 500.0  # Beta: largest α − 1 and β − 1
MIN_LOG_STD = -5.0
MAX_LOG_STD = 0.5
# Squashed Gaussian: raw outputs of 0 give units the same spread as the initial Beta distribution.
LOG_STD_OFFSET = 2.2
QUADRATURE_POINTS = 32

Params = tuple[Tensor, ...]  # the parameters of a distribution, each [*batch, active]


class Box(NamedTuple):
    """Holds the affine map to actions: `low + width * unit` for active parameters, constants for
    the others.
    """

    low: Float[Tensor, " active"]
    width: Float[Tensor, " active"]
    # Σ ln width.
    log_volume: float
    columns: Int64[Tensor, " active"]
    constants: Float[Tensor, " parameters"]


class Policy(NamedTuple):
    """Holds the pure functions of a policy.

    distribution: raw float32 outputs -> parameters of the distribution. mean: the raw
    action of the deterministic policy. action: raw action -> executed action. kl(old, new): KL(old
    || new). raw_entropy: entropy of the raw action. For the Gaussian it grows with the standard
    deviation while that of the executed action may fall, so it is recorded and not optimised.
    """

    distribution: Callable[[Tensor], Params]
    sample: Callable[[Params, torch.Generator], Tensor]
    mean: Callable[[Params], Tensor]
    action: Callable[[Tensor], Tensor]
    log_prob: Callable[[Params, Tensor], Tensor]
    entropy: Callable[[Params], Tensor]
    kl: Callable[[Params, Params], Tensor]
    raw_entropy: Callable[[Params], Tensor]


def make_policy(
    kind: Literal["beta", "squashed_gaussian"],
    bounds: tuple[Bounds, ...],
    active: tuple[str, ...],
    fixed: Mapping[str, float],
) -> Policy:
    """Builds a policy.

    Args:
        kind: the family of distributions.
        bounds: of PARAMETERS, in that order.
        active: the parameters that are drawn, in the order of PARAMETERS.
        fixed: values of all other parameters.
    """
    columns = [PARAMETERS.index(name) for name in active]
    widths = [bounds[column].high - bounds[column].low for column in columns]
    box = Box(
        low=torch.tensor([bounds[column].low for column in columns], dtype=torch.float32),
        width=torch.tensor(widths, dtype=torch.float32),
        log_volume=sum(map(math.log, widths)),
        columns=torch.tensor(columns),
        constants=torch.tensor([0.0 if name in active else fixed[name] for name in PARAMETERS]),
    )
    return FAMILIES[kind](box)


def make_box_policy(
    kind: Literal["beta", "squashed_gaussian"],
    low: tuple[float, ...],
    high: tuple[float, ...],
) -> Policy:
    """Builds a policy of actions that are vectors between these bounds."""
    widths = [above - below for below, above in zip(low, high, strict=True)]
    box = Box(
        low=torch.tensor(low),
        width=torch.tensor(widths),
        log_volume=sum(map(math.log, widths)),
        columns=torch.arange(len(low)),
        constants=torch.zeros(len(low)),
    )
    return FAMILIES[kind](box)


def scale_to_bounds(
    box: Box,
    unit: Float[Tensor, "*batch active"],
) -> Float[Tensor, "*batch parameters"]:
    """Returns the actions of units in [0, 1]; below the upper bound for every unit <= 1 − EDGE."""
    return box.constants.expand(*unit.shape[:-1], -1).index_copy(
        -1,
        box.columns,
        box.low + box.width * unit,
    )


def _beta(box: Box) -> Policy:
    return Policy(
        distribution=beta_distribution,
        sample=beta_sample,
        mean=lambda params: params[0] / (params[0] + params[1]),
        action=partial(scale_to_bounds, box),
        log_prob=lambda params, z: beta_log_prob(params, z) - box.log_volume,
        entropy=lambda params: beta_entropy(params) + box.log_volume,
        kl=beta_kl,
        raw_entropy=beta_entropy,
    )


def beta_distribution(raw: Float[Tensor, "*batch two_active"]) -> Params:
    """Returns α and β > 1, so that the density is bounded and has one peak."""
    above_one = functional.softplus(raw + CONCENTRATION_OFFSET).clamp(max=MAX_CONCENTRATION)
    return (1 + above_one).chunk(2, -1)


def standard_gamma(
    shape: Float[Tensor, "*any"],
    generator: torch.Generator,
) -> Float[Tensor, "*any"]:
    """Draws from Gamma(shape, 1), by a private function: torch.distributions does not accept a
    generator.
    """
    return torch._standard_gamma(shape, generator=generator)


@torch.no_grad()
def beta_sample(params: Params, generator: torch.Generator) -> Float[Tensor, "*batch active"]:
    """Draws u / (u + v) with u from Gamma(α, 1) and v from Gamma(β, 1)."""
    u, v = standard_gamma(torch.stack(params), generator)
    return (u / (u + v)).clamp(EDGE, 1 - EDGE)


def beta_log_prob(
    params: Params,
    z: Float[Tensor, "*batch active"],
) -> Float[Tensor, "*batch"]:
    """Computes Σ (α−1) ln z + (β−1) ln(1−z) − ln B(α,β).

    In float64: where α and β are large the terms cancel, and a ratio of 1 would be off by 2e-4 at α
    = 50.
    """
    alpha, beta = (param.double() for param in params)
    wide = z.double()
    log_beta_function = _first_two_minus_third(torch.lgamma(_stack_with_sum(alpha, beta)))
    density = (alpha - 1) * wide.log() + (beta - 1) * torch.log1p(-wide) - log_beta_function
    return density.sum(-1).to(z.dtype)


def beta_entropy(params: Params) -> Float[Tensor, "*batch"]:
    """Computes Σ ln B(α,β) − (α−1) ψ(α) − (β−1) ψ(β) + (α+β−2) ψ(α+β)."""
    alpha, beta = params
    stacked = _stack_with_sum(alpha, beta)
    weights = _stack_with_sum(alpha - 1, beta - 1)
    return _first_two_minus_third(torch.lgamma(stacked) - weights * torch.digamma(stacked)).sum(-1)


def beta_kl(old: Params, new: Params) -> Float[Tensor, "*batch"]:
    """Computes KL(old || new) in float64, where the terms cancel.

    With α, β of old and α', β' of new:
    Σ ln B(α',β') − ln B(α,β) + (α−α') ψ(α) + (β−β') ψ(β) − (α+β−α'−β') ψ(α+β).
    """
    old_stacked = _stack_with_sum(*(param.double() for param in old))
    new_stacked = _stack_with_sum(*(param.double() for param in new))
    log_gamma = torch.lgamma(new_stacked) - torch.lgamma(old_stacked)
    terms = log_gamma - (new_stacked - old_stacked) * torch.digamma(old_stacked)
    return _first_two_minus_third(terms).sum(-1).to(old[0].dtype)


def _stack_with_sum(alpha: Tensor, beta: Tensor) -> Float[Tensor, "3 *batch active"]:
    """Returns the arguments of ln Γ and ψ as one tensor, so that each is one call."""
    return torch.stack([alpha, beta, alpha + beta])


def _first_two_minus_third(terms: Float[Tensor, "3 *batch active"]) -> Tensor:
    of_alpha, of_beta, of_sum = terms.unbind()
    return of_alpha + of_beta - of_sum


def _squashed_gaussian(box: Box) -> Policy:
    points, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS)
    points_q = torch.tensor(points, dtype=torch.float32)
    weights_q = torch.tensor(weights / weights.sum(), dtype=torch.float32)

    def log_prob(params: Params, z: Tensor) -> Tensor:
        return gaussian_log_prob(params, z) - log_slope(z).sum(-1) - box.log_volume

    return Policy(
        distribution=gaussian_distribution,
        sample=gaussian_sample,
        mean=lambda params: params[0].clamp(-MAX_LOGIT, MAX_LOGIT),
        action=lambda z: scale_to_bounds(box, z.sigmoid()),
        log_prob=log_prob,
        entropy=lambda params: squashed_entropy(params, points_q, weights_q) + box.log_volume,
        kl=gaussian_kl,
        raw_entropy=gaussian_entropy,
    )


def gaussian_distribution(raw: Float[Tensor, "*batch two_active"]) -> Params:
    """Returns mean and log standard deviation, bounded by a sigmoid: unlike a clamp's, its gradient
    never vanishes.
    """
    mean, raw_std = raw.chunk(2, -1)
    log_std = MIN_LOG_STD + (MAX_LOG_STD - MIN_LOG_STD) * (raw_std + LOG_STD_OFFSET).sigmoid()
    return mean, log_std


@torch.no_grad()
def gaussian_sample(params: Params, generator: torch.Generator) -> Float[Tensor, "*batch active"]:
    """Draws z and clamps it so that units keep EDGE from 0 and 1."""
    mean, log_std = params
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return (mean + log_std.exp() * noise).clamp(-MAX_LOGIT, MAX_LOGIT)


def gaussian_log_prob(
    params: Params,
    z: Float[Tensor, "*batch active"],
) -> Float[Tensor, "*batch"]:
    mean, log_std = params
    deviation = (z - mean) * (-log_std).exp()
    return (-0.5 * deviation.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def log_slope(z: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Computes ln sigmoid'(z) = ln sigmoid(z) + ln sigmoid(−z), by one transcendental function."""
    return -z - 2 * functional.softplus(-z)


def gaussian_entropy(params: Params) -> Float[Tensor, "*batch"]:
    """Computes the entropy of z before squashing, Σ (1 + ln 2π) / 2 + ln s."""
    _, log_std = params
    return (log_std + 0.5 * (1 + math.log(2 * math.pi))).sum(-1)


def squashed_entropy(
    params: Params,
    points_q: Float[Tensor, " node"],
    weights_q: Float[Tensor, " node"],
) -> Float[Tensor, "*batch"]:
    """Computes the entropy of sigmoid(z): that of z plus E ln sigmoid'(z), by quadrature (it has no
    closed form).
    """
    mean, log_std = params
    z_q = mean[..., None] + log_std.exp()[..., None] * points_q
    return gaussian_entropy(params) + (log_slope(z_q) @ weights_q).sum(-1)


def gaussian_kl(old: Params, new: Params) -> Float[Tensor, "*batch"]:
    """Computes Σ ln(s'/s) + (s² + (μ−μ')²) / (2 s'²) − 1/2 of z, hence of the action; in this order
    no terms cancel.
    """
    old_mean, old_log_std = old
    new_mean, new_log_std = new
    log_variance_ratio = 2 * (old_log_std - new_log_std)
    shift = (new_mean - old_mean) * (-new_log_std).exp()
    return 0.5 * (torch.expm1(log_variance_ratio) - log_variance_ratio + shift.square()).sum(-1)


FAMILIES: dict[str, Callable[[Box], Policy]] = {
    "beta": _beta,
    "squashed_gaussian": _squashed_gaussian,
}
