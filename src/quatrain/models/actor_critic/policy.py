"""raw outputs of the actor -> a distribution over actions: samples, log-probabilities, entropy, KL
divergence

A policy draws a raw action z. Draws are clamped away from the edges of the distribution first, so
the same z is stored, executed and scored. Of numbers between bounds, log-probabilities and
entropies are those of the executed action, low + (high − low) unit, where unit is z itself (Beta)
or sigmoid(z) (squashed Gaussian). Of indices, z are the indices as numbers.

Each policy has `actions`, the numbers of a raw action; `dist_params`, the number of parameters of
its distribution and the size of each; and pure functions of these parameters: `distribution` (from
the raw float32 outputs of the network, as many as the product of `dist_params`), `sample` (without
a gradient), `mean` (the raw action of the deterministic policy), `action` (the executed action of a
raw one), `log_prob`, `entropy`, `kl` (KL(old || new)) and `metrics` (what else is recorded).
"""

import math
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from quatrain.replay.rollouts import Spec

EDGE = 1e-5  # smallest distance of a drawn unit from 0 and 1
MAX_LOGIT = math.log((1 - EDGE) / EDGE)
CONCENTRATION_OFFSET = 1.5  # Beta: raw outputs of 0 give α = β = 1 + softplus(1.5) = 2.70
MAX_CONCENTRATION = 500.0  # Beta: largest α − 1 and β − 1
MIN_LOG_STD = -5.0
MAX_LOG_STD = 0.5
# Squashed Gaussian: raw outputs of 0 give units the same spread as the initial Beta distribution.
LOG_STD_OFFSET = 2.2
QUADRATURE_POINTS = 32

Params = tuple[Tensor, ...]  # the parameters of a distribution, each [*batch, size]


class BoxPolicy:
    """Draws numbers between bounds; a distribution has a pair of parameters for each number."""

    def __init__(self, spec: Spec) -> None:
        widths = [high - low for low, high in zip(spec.action_low, spec.action_high, strict=True)]
        self.actions = len(widths)
        self.dist_params = (2, self.actions)
        self.low = torch.tensor(spec.action_low)
        self.width = torch.tensor(widths)
        self.log_volume = sum(map(math.log, widths))

    def to_bounds(self, unit: Float[Tensor, "*batch action"]) -> Float[Tensor, "*batch action"]:
        """Returns the numbers of units in [0, 1]; below the upper bound for units <= 1 − EDGE."""
        return self.low + self.width * unit


class Beta(BoxPolicy):
    """Draws units from Beta(α, β) with α and β > 1: the density is bounded and has one peak."""

    def distribution(self, raw: Float[Tensor, "*batch raw"]) -> Params:
        above_one = functional.softplus(raw + CONCENTRATION_OFFSET).clamp(max=MAX_CONCENTRATION)
        return (1 + above_one).chunk(2, -1)

    @torch.no_grad()
    def sample(self, params: Params, generator: torch.Generator) -> Float[Tensor, "*batch action"]:
        """Draws u / (u + v) with u from Gamma(α, 1) and v from Gamma(β, 1)."""
        # A private function, because torch.distributions accepts no generator.
        u, v = torch._standard_gamma(torch.stack(params), generator=generator)
        return (u / (u + v)).clamp(EDGE, 1 - EDGE)

    def mean(self, params: Params) -> Float[Tensor, "*batch action"]:
        return params[0] / (params[0] + params[1])

    def action(self, z: Float[Tensor, "*batch action"]) -> Float[Tensor, "*batch action"]:
        return self.to_bounds(z)

    def log_prob(
        self, params: Params, z: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """Computes Σ (α−1) ln z + (β−1) ln(1−z) − ln B(α,β).

        In float64: where α and β are large the terms cancel, and a ratio of 1 would be off by 2e-4
        at α = 50.
        """
        alpha, beta = (param.double() for param in params)
        wide = z.double()
        log_beta_function = _first_two_minus_third(torch.lgamma(_stack_with_sum(alpha, beta)))
        density = (alpha - 1) * wide.log() + (beta - 1) * torch.log1p(-wide) - log_beta_function
        return density.sum(-1).to(z.dtype) - self.log_volume

    def entropy(self, params: Params) -> Float[Tensor, "*batch"]:
        return beta_entropy(params) + self.log_volume

    def kl(self, old: Params, new: Params) -> Float[Tensor, "*batch"]:
        """Computes KL(old || new) in float64, where the terms cancel.

        With α, β of old and α', β' of new:
        Σ ln B(α',β') − ln B(α,β) + (α−α') ψ(α) + (β−β') ψ(β) − (α+β−α'−β') ψ(α+β).
        """
        old_stacked = _stack_with_sum(*(param.double() for param in old))
        new_stacked = _stack_with_sum(*(param.double() for param in new))
        log_gamma = torch.lgamma(new_stacked) - torch.lgamma(old_stacked)
        terms = log_gamma - (new_stacked - old_stacked) * torch.digamma(old_stacked)
        return _first_two_minus_third(terms).sum(-1).to(old[0].dtype)

    def metrics(self, params: Params) -> dict[str, Float[Tensor, ""]]:
        return {
            "raw_entropy": beta_entropy(params).mean(),
            "concentration": (params[0] + params[1]).mean(),
        }


def beta_entropy(params: Params) -> Float[Tensor, "*batch"]:
    """Computes Σ ln B(α,β) − (α−1) ψ(α) − (β−1) ψ(β) + (α+β−2) ψ(α+β), the entropy of units."""
    alpha, beta = params
    stacked = _stack_with_sum(alpha, beta)
    weights = _stack_with_sum(alpha - 1, beta - 1)
    return _first_two_minus_third(torch.lgamma(stacked) - weights * torch.digamma(stacked)).sum(-1)


def _stack_with_sum(alpha: Tensor, beta: Tensor) -> Float[Tensor, "3 *batch action"]:
    """Returns the arguments of ln Γ and ψ as one tensor, so that each is one call."""
    return torch.stack([alpha, beta, alpha + beta])


def _first_two_minus_third(terms: Float[Tensor, "3 *batch action"]) -> Tensor:
    of_alpha, of_beta, of_sum = terms.unbind()
    return of_alpha + of_beta - of_sum


class SquashedGaussian(BoxPolicy):
    """Draws z from a Gaussian; its parameters are mean and log standard deviation."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        points, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS)
        self.points_q = torch.tensor(points, dtype=torch.float32)
        self.weights_q = torch.tensor(weights / weights.sum(), dtype=torch.float32)

    def distribution(self, raw: Float[Tensor, "*batch raw"]) -> Params:
        """Returns mean and log standard deviation, bounded by a sigmoid: unlike a clamp's, its
        gradient never vanishes.
        """
        mean, raw_std = raw.chunk(2, -1)
        log_std = MIN_LOG_STD + (MAX_LOG_STD - MIN_LOG_STD) * (raw_std + LOG_STD_OFFSET).sigmoid()
        return mean, log_std

    @torch.no_grad()
    def sample(self, params: Params, generator: torch.Generator) -> Float[Tensor, "*batch action"]:
        """Draws z and clamps it so that units keep EDGE from 0 and 1."""
        mean, log_std = params
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return (mean + log_std.exp() * noise).clamp(-MAX_LOGIT, MAX_LOGIT)

    def mean(self, params: Params) -> Float[Tensor, "*batch action"]:
        return params[0].clamp(-MAX_LOGIT, MAX_LOGIT)

    def action(self, z: Float[Tensor, "*batch action"]) -> Float[Tensor, "*batch action"]:
        return self.to_bounds(z.sigmoid())

    def log_prob(
        self, params: Params, z: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        mean, log_std = params
        deviation = (z - mean) * (-log_std).exp()
        of_z = (-0.5 * deviation.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        return of_z - log_slope(z).sum(-1) - self.log_volume

    def entropy(self, params: Params) -> Float[Tensor, "*batch"]:
        """Computes the entropy of z plus E ln sigmoid'(z), by quadrature: it has no closed form."""
        mean, log_std = params
        z_q = mean[..., None] + log_std.exp()[..., None] * self.points_q
        of_unit = gaussian_entropy(params) + (log_slope(z_q) @ self.weights_q).sum(-1)
        return of_unit + self.log_volume

    def kl(self, old: Params, new: Params) -> Float[Tensor, "*batch"]:
        """Computes Σ ln(s'/s) + (s² + (μ−μ')²) / (2 s'²) − 1/2 of z, hence of the action; in this
        order no terms cancel.
        """
        old_mean, old_log_std = old
        new_mean, new_log_std = new
        log_variance_ratio = 2 * (old_log_std - new_log_std)
        shift = (new_mean - old_mean) * (-new_log_std).exp()
        return 0.5 * (torch.expm1(log_variance_ratio) - log_variance_ratio + shift.square()).sum(-1)

    def metrics(self, params: Params) -> dict[str, Float[Tensor, ""]]:
        """Returns the entropy of z. It grows with the standard deviation while that of the executed
        action may fall, so it is recorded and not optimised.
        """
        return {"raw_entropy": gaussian_entropy(params).mean()}


def log_slope(z: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Computes ln sigmoid'(z) = ln sigmoid(z) + ln sigmoid(−z), by one transcendental function."""
    return -z - 2 * functional.softplus(-z)


def gaussian_entropy(params: Params) -> Float[Tensor, "*batch"]:
    """Computes the entropy of z before squashing, Σ (1 + ln 2π) / 2 + ln s."""
    _, log_std = params
    return (log_std + 0.5 * (1 + math.log(2 * math.pi))).sum(-1)


class Categorical:
    """Draws indices, independently of each other; the only parameter is their log-probabilities,
    those of one index after the other.
    """

    def __init__(self, spec: Spec) -> None:
        self.counts = list(spec.action_counts)
        self.actions = len(self.counts)
        self.dist_params = (1, sum(self.counts))
        self.offsets = torch.tensor([0, *accumulate(self.counts[:-1])])

    def distribution(self, raw: Float[Tensor, "*batch raw"]) -> Params:
        return (torch.cat([part.log_softmax(-1) for part in raw.split(self.counts, -1)], -1),)

    @torch.no_grad()
    def sample(self, params: Params, generator: torch.Generator) -> Float[Tensor, "*batch index"]:
        (log_probs,) = params
        indices = [
            torch.multinomial(part.exp().reshape(-1, part.shape[-1]), 1, generator=generator)
            for part in log_probs.split(self.counts, -1)
        ]
        drawn = torch.cat(indices, 1).reshape(*log_probs.shape[:-1], self.actions)
        return drawn.to(log_probs.dtype)

    def mean(self, params: Params) -> Float[Tensor, "*batch index"]:
        """Returns the most likely indices."""
        (log_probs,) = params
        parts = log_probs.split(self.counts, -1)
        return torch.stack([part.argmax(-1) for part in parts], -1).to(log_probs.dtype)

    def action(self, z: Float[Tensor, "*batch index"]) -> Int64[Tensor, "..."]:
        """Returns indices; a single one without an axis."""
        return z.long() if self.actions > 1 else z[..., 0].long()

    def log_prob(self, params: Params, z: Float[Tensor, "*batch index"]) -> Float[Tensor, "*batch"]:
        (log_probs,) = params
        return log_probs.gather(-1, z.long() + self.offsets).sum(-1)

    def entropy(self, params: Params) -> Float[Tensor, "*batch"]:
        (log_probs,) = params
        return -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, old: Params, new: Params) -> Float[Tensor, "*batch"]:
        """Computes Σ p_old (ln p_old − ln p_new)."""
        (old_log_probs,) = old
        (new_log_probs,) = new
        return (old_log_probs.exp() * (old_log_probs - new_log_probs)).sum(-1)

    def metrics(self, params: Params) -> dict[str, Float[Tensor, ""]]:  # noqa: ARG002
        return {}


Policy = Beta | SquashedGaussian | Categorical


# Of actions that are numbers, by the names of `config.Distribution`.
DISTRIBUTIONS: dict[str, type[Beta | SquashedGaussian]] = {
    "beta": Beta,
    "squashed_gaussian": SquashedGaussian,
}


def make_policy(name: str, spec: Spec) -> Policy:
    """Returns a policy over indices where the environment has such, else that of this name."""
    return Categorical(spec) if spec.action_counts else DISTRIBUTIONS[name](spec)
