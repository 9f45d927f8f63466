"""beliefs about the states of a run -> the posterior of the weights that the field is linear in

Σ⁻¹ = I/s_w² + Σ_i φ(μ_i) φ(μ_i)ᵀ / q with q = mean(s dt + 2v) / dt²: regression on the features of
the last layer (with a constant 1 where it has a bias). The targets (x_{i+1} - x_i)/dt are uncertain
because of the noise of a step and because both states are.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay.windows import View

# Transitions between full recomputations; in between, each transition adds its own feature.
REFRESH_EVERY = 50


class Posterior(NamedTuple):
    """Holds Σ, shared by the weights of all outputs, and step_variance = q dt².

    The covariance of an ensemble has no features: the spread of its members takes its place.
    """

    covariance: Float[Tensor, "feature feature"]
    step_variance: Float[Tensor, ""]


@torch.no_grad()
def initial_posterior(network: SeqVae) -> Posterior:
    """Returns the prior. The states are as uncertain as the encoder's initial output."""
    belief = network.encoder.belief(network.encoder.initial_hidden(1))
    features = 0
    if network.has_weight_posterior:
        features = network.dynamics.field().features(belief.mean.T[None]).shape[1]
    covariance = network.prior_variance * torch.eye(features, device=belief.mean.device)
    return Posterior(covariance, step_variance(network, belief))


def step_variance(network: SeqVae, belief: Belief) -> Float[Tensor, ""]:
    """Computes mean(s dt + 2v)."""
    return network.step_variance.mean() + 2 * belief.variance.mean()


@torch.no_grad()
def add_state(network: SeqVae, posterior: Posterior, mean: Float[Tensor, " d"]) -> Posterior:
    """Returns the posterior given one more state; q stays as it is."""
    if not network.has_weight_posterior:
        return posterior
    covariance, variance = posterior
    feature = network.dynamics.field().features(mean[None, :, None])[0, :, 0]
    projected = covariance @ feature
    noise = variance / network.dt**2 + feature @ projected
    return Posterior(torch.addr(covariance, projected, projected / noise, alpha=-1), variance)


@torch.no_grad()
def encode_replay(network: SeqVae, transitions: View) -> Belief:
    """Encodes the states that the transitions of one learner led to: [time, d]."""
    inputs = torch.cat([transitions.observations, transitions.actions], -1)
    return network.encoder.belief(network.encoder.encode_episodes(inputs, transitions.truncated))


@torch.no_grad()
def recompute(network: SeqVae, belief: Belief) -> Posterior:
    """Computes the posterior of all encoded transitions of the replay.

    The covariance is NaN if the precision matrix is not positive definite.
    """
    variance = step_variance(network, belief)
    if not network.has_weight_posterior:
        return Posterior(torch.eye(0, device=variance.device), variance)
    features = network.dynamics.field().features(belief.mean.T[None])[0].double()
    precision = features @ features.T * (network.dt**2 / variance.double())
    precision.diagonal().add_(1 / network.prior_variance)
    root, failed = torch.linalg.cholesky_ex(precision)
    covariance = torch.cholesky_inverse(root).masked_fill(failed > 0, torch.nan)
    return Posterior(covariance.to(variance.dtype), variance)
