"""beliefs about the states of a run -> how sure the weights are that the field is linear in

Σ⁻¹ = I/s_w² + Σ_i φ(μ_i) φ(μ_i)ᵀ / q with q = mean(s dt + 2v) / dt²: regression on the features of the last layer
(a constant 1 among them where it has a bias), whose targets (x_{i+1} - x_i)/dt are uncertain by the noise of a step
and by that of both states.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay import windows
from quatrain.replay.windows import WindowRing

REFRESH_EVERY = 50
"""Transitions, between which each adds its own feature alone."""


class Posterior(NamedTuple):
    """covariance: Σ, of the weights of each output; of ensembles, whose spread takes its place, without any feature.

    step_variance: q dt².
    """

    covariance: Float[Tensor, "feature feature"]
    step_variance: Float[Tensor, ""]


def has_features(network: SeqVae) -> bool:
    """An ensemble tells by its members how sure it is."""
    return network.members == 1


@torch.no_grad()
def prior(network: SeqVae) -> Posterior:
    """Before any transition; the states as uncertain as the encoder is at first."""
    first = network.encoder.belief(network.encoder.first(1))
    features = (
        network.dynamics.field().features(first.mean.T[None]).shape[1]
        if has_features(network)
        else 0
    )
    covariance = network.prior_variance * torch.eye(features, device=first.mean.device)
    return Posterior(covariance, step_variance(network, first))


def step_variance(network: SeqVae, belief: Belief) -> Float[Tensor, ""]:
    """mean(s dt + 2v)."""
    return network.step_variance.mean() + 2 * belief.variance.mean()


@torch.no_grad()
def noted(network: SeqVae, known: Posterior, mean: Float[Tensor, " d"]) -> Posterior:
    """With one state more; q stays."""
    if not has_features(network):
        return known
    covariance, variance = known
    feature = network.dynamics.field().features(mean[None, :, None])[0, :, 0]
    along = covariance @ feature
    noise = variance / network.dt**2 + feature @ along
    return Posterior(torch.addr(covariance, along, along / noise, alpha=-1), variance)


@torch.no_grad()
def refreshed(network: SeqVae, ring: WindowRing, row: int) -> Posterior:
    """Of all that is in the replay, as the network sees it now."""
    written, stored = int(ring.written), ring.stored
    seen = windows.window(ring, row, written - stored, stored)
    inputs = torch.cat([seen.observations, seen.actions], -1)
    belief = network.encoder.belief(network.encoder.over_episodes(inputs, seen.truncated))
    variance = step_variance(network, belief)
    if not has_features(network):
        return Posterior(torch.eye(0, device=inputs.device), variance)
    features = network.dynamics.field().features(belief.mean.T[None])[0].double()
    precision = features @ features.T * (network.dt**2 / variance.double())
    precision.diagonal().add_(1 / network.prior_variance)
    root, failed = torch.linalg.cholesky_ex(precision)
    covariance = torch.cholesky_inverse(root).masked_fill(failed > 0, torch.nan)
    return Posterior(covariance.to(variance.dtype), variance)
