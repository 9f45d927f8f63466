"""raw numbers of the actor -> a distribution over actions: what it draws, how likely that was, how far it moved

A policy draws z, one number for each active parameter; the others stand still and take part in nothing. What is
drawn is kept away from the edges first, so one z is stored, acted and scored. Densities and entropies are those of the
executed action, low + (high − low) unit, where unit is z itself (Beta) or sigmoid(z) (squashed Gaussian).
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

EDGE = 1e-5
"""Units are drawn at least so far from 0 and 1."""
FURTHEST = math.log((1 - EDGE) / EDGE)
START, CONCENTRATED = 1.5, 500.0
"""Beta: of raw numbers 0, a = b = 1 + softplus(START) = 2.70; a and b exceed 1 by CONCENTRATED at most."""
NARROW, WIDE, WIDTH_START = -5.0, 0.5, 2.2
"""Squashed Gaussian: range of log s, and where raw numbers 0 stand in it, which spreads units as far as Beta's do."""
NODES = 32
"""Of the Gauss-Hermite quadrature."""


class Parameters(NamedTuple):
    """Of a distribution, for each active parameter: Beta's a and b, or the Gaussian's μ and log s."""

    first: Float[Tensor, "*batch active"]
    second: Float[Tensor, "*batch active"]


class Box(NamedTuple):
    """Where units go: `low + width * unit` in the columns of active parameters, constants elsewhere."""

    low: Float[Tensor, " active"]
    width: Float[Tensor, " active"]
    log_volume: float  # Σ ln width
    columns: Int64[Tensor, " active"]
    constants: Float[Tensor, " parameters"]


class Policy(NamedTuple):
    """The pure functions that make up a policy; kl(old, new) is KL(old || new).

    distribution takes 2 x active raw numbers in float32. centre is the z that is played when nothing is drawn.
    raw_entropy is that of z: of the Gaussian it grows with s while the executed action's falls, so it is no bonus.
    """

    distribution: Callable[[Tensor], Parameters]
    sample: Callable[[Parameters, torch.Generator], Tensor]
    centre: Callable[[Parameters], Tensor]
    action: Callable[[Tensor], Tensor]
    log_prob: Callable[[Parameters, Tensor], Tensor]
    entropy: Callable[[Parameters], Tensor]
    kl: Callable[[Parameters, Parameters], Tensor]
    raw_entropy: Callable[[Parameters], Tensor]


def make_policy(
    kind: Literal["beta", "squashed_gaussian"],
    bounds: tuple[Bounds, ...],
    active: tuple[str, ...],
    fixed: Mapping[str, float],
) -> Policy:
    """bounds: of PARAMETERS; active: some of these, in that order; fixed: the values of all others."""
    box = make_box(bounds, active, fixed)
    return {"beta": _beta, "squashed_gaussian": _squashed_gaussian}[kind](box)


def make_box(
    bounds: tuple[Bounds, ...], active: tuple[str, ...], fixed: Mapping[str, float]
) -> Box:
    columns = [PARAMETERS.index(name) for name in active]
    lows, widths = (
        [bounds[i].low for i in columns],
        [bounds[i].high - bounds[i].low for i in columns],
    )
    return Box(
        low=torch.tensor(lows, dtype=torch.float32),
        width=torch.tensor(widths, dtype=torch.float32),
        log_volume=sum(map(math.log, widths)),
        columns=torch.tensor(columns),
        constants=torch.tensor([0.0 if name in active else fixed[name] for name in PARAMETERS]),
    )


def placed(box: Box, unit: Float[Tensor, "*batch active"]) -> Float[Tensor, "*batch parameters"]:
    """The action of these units; below its upper bound for any unit <= 1 − EDGE."""
    constants = box.constants.expand(*unit.shape[:-1], -1)
    return constants.index_copy(-1, box.columns, box.low + box.width * unit)


def _beta(box: Box) -> Policy:
    return Policy(
        distribution=beta_distribution,
        sample=beta_sample,
        centre=lambda parameters: parameters.first / (parameters.first + parameters.second),
        action=partial(placed, box),
        log_prob=lambda parameters, z: beta_log_prob(parameters, z) - box.log_volume,
        entropy=lambda parameters: beta_entropy(parameters) + box.log_volume,
        kl=beta_kl,
        raw_entropy=beta_entropy,
    )


def beta_distribution(raw: Float[Tensor, "*batch two_active"]) -> Parameters:
    """Both parameters exceed 1: one peak, a bounded density."""
    above_one = functional.softplus(raw + START).clamp(max=CONCENTRATED)
    return Parameters(*(1 + above_one).chunk(2, -1))


def standard_gamma(
    shape: Float[Tensor, "*any"], generator: torch.Generator
) -> Float[Tensor, "*any"]:
    """Draws from Gamma(shape, 1). torch.distributions takes no generator, hence this call of a private function."""
    return torch._standard_gamma(shape, generator=generator)


@torch.no_grad()
def beta_sample(
    parameters: Parameters, generator: torch.Generator
) -> Float[Tensor, "*batch active"]:
    """u / (u + v) of two Gamma draws."""
    u, v = standard_gamma(torch.stack(parameters), generator)
    return (u / (u + v)).clamp(EDGE, 1 - EDGE)


def beta_log_prob(
    parameters: Parameters, z: Float[Tensor, "*batch active"]
) -> Float[Tensor, "*batch"]:
    """Σ (a−1) ln z + (b−1) ln(1−z) − ln B(a,b).

    In float64: where a and b are large the terms cancel, and a ratio of 1 would be off by 2e-4 at a = 50.
    """
    a, b = (part.double() for part in parameters)
    wide = z.double()
    log_beta = _alternating(torch.lgamma(_three(a, b)))
    return ((a - 1) * wide.log() + (b - 1) * torch.log1p(-wide) - log_beta).sum(-1).to(z.dtype)


def beta_entropy(parameters: Parameters) -> Float[Tensor, "*batch"]:
    """Σ ln B(a,b) − (a−1) ψ(a) − (b−1) ψ(b) + (a+b−2) ψ(a+b)."""
    (a, b), three = parameters, _three(*parameters)
    return _alternating(torch.lgamma(three) - _three(a - 1, b - 1) * torch.digamma(three)).sum(-1)


def beta_kl(old: Parameters, new: Parameters) -> Float[Tensor, "*batch"]:
    """Σ ln B(a',b') − ln B(a,b) + (a−a') ψ(a) + (b−b') ψ(b) − (a+b−a'−b') ψ(a+b), in float64 as the terms cancel."""
    at, to = (_three(*(part.double() for part in parameters)) for parameters in (old, new))
    gained = torch.lgamma(to) - torch.lgamma(at) - (to - at) * torch.digamma(at)
    return _alternating(gained).sum(-1).to(old.first.dtype)


def _three(a: Tensor, b: Tensor) -> Float[Tensor, "3 *batch active"]:
    """What ln Γ and ψ are taken of, in one call."""
    return torch.stack([a, b, a + b])


def _alternating(three: Float[Tensor, "3 *batch active"]) -> Float[Tensor, "*batch active"]:
    of_a, of_b, of_sum = three.unbind()
    return of_a + of_b - of_sum


def _squashed_gaussian(box: Box) -> Policy:
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    points_q, weights_q = (
        torch.tensor(x, dtype=torch.float32) for x in (points, weights / weights.sum())
    )
    return Policy(
        distribution=gaussian_distribution,
        sample=gaussian_sample,
        centre=lambda parameters: parameters.first.clamp(-FURTHEST, FURTHEST),
        action=lambda z: placed(box, z.sigmoid()),
        log_prob=lambda parameters, z: (
            gaussian_log_prob(parameters, z) - log_slope(z).sum(-1) - box.log_volume
        ),
        entropy=lambda parameters: (
            squashed_entropy(parameters, points_q, weights_q) + box.log_volume
        ),
        kl=gaussian_kl,
        raw_entropy=gaussian_entropy,
    )


def gaussian_distribution(raw: Float[Tensor, "*batch two_active"]) -> Parameters:
    """Both are functions of the state. A sigmoid bounds log s, whose gradient never vanishes as a clamp's would."""
    mean, width = raw.chunk(2, -1)
    return Parameters(mean, NARROW + (WIDE - NARROW) * (width + WIDTH_START).sigmoid())


@torch.no_grad()
def gaussian_sample(
    parameters: Parameters, generator: torch.Generator
) -> Float[Tensor, "*batch active"]:
    """z as far from the edges as Beta's."""
    mean, log_s = parameters
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return (mean + log_s.exp() * noise).clamp(-FURTHEST, FURTHEST)


def gaussian_log_prob(
    parameters: Parameters, z: Float[Tensor, "*batch active"]
) -> Float[Tensor, "*batch"]:
    """Of z itself."""
    mean, log_s = parameters
    return (
        -0.5 * ((z - mean) * (-log_s).exp()).square() - log_s - 0.5 * math.log(2 * math.pi)
    ).sum(-1)


def log_slope(z: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """ln sigmoid'(z) = ln sigmoid(z) + ln sigmoid(−z), by one transcendental function."""
    return -z - 2 * functional.softplus(-z)


def gaussian_entropy(parameters: Parameters) -> Float[Tensor, "*batch"]:
    """Of z itself: Σ (1 + ln 2π) / 2 + ln s."""
    return (parameters.second + 0.5 * (1 + math.log(2 * math.pi))).sum(-1)


def squashed_entropy(
    parameters: Parameters, points_q: Float[Tensor, " node"], weights_q: Float[Tensor, " node"]
) -> Float[Tensor, "*batch"]:
    """Of sigmoid(z): that of z and E ln sigmoid'(z), by quadrature as it has no closed form."""
    mean, log_s = parameters
    z_q = mean[..., None] + log_s.exp()[..., None] * points_q
    return gaussian_entropy(parameters) + (log_slope(z_q) @ weights_q).sum(-1)


def gaussian_kl(old: Parameters, new: Parameters) -> Float[Tensor, "*batch"]:
    """Σ ln(s'/s) + (s² + (μ−μ')²) / (2 s'²) − 1/2, of z and hence of the action; no terms cancel in this order."""
    twice = 2 * (old.second - new.second)
    moved = (new.first - old.first) * (-new.second).exp()
    return 0.5 * (torch.expm1(twice) - twice + moved.square()).sum(-1)
