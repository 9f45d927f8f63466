"""predictions, observations -> optimised terms: a bound on the evidence, or innovations.

seq_vae ('Auto-Encoding Variational Bayes', 2014, over time). A window has T transitions, the
encoder's beliefs are N(μ_t, v_t), and S samples are z_t = μ_t + √v_t ε. In z̃_t a masked sample is
replaced by the step m(z_{t-1}) + √(s dt) ε; b_t = 0 where the sample is masked, else 1. m⁽ᵏ⁾ is the
mean of the last of k steps from z̃_t, q and p are variances, and the replay has N transitions:

    ell          = mean_s Σ_t ln p(y_t | z̃_t)
    kl_first     = KL[ N(μ_1, v_1) ‖ N(m_0, v_0) ]
    kl_steps     = Σ_k w_k mean_s Σ_{t=1}^{T-k} b_{t+k} KL_{t,k}
    KL_{t,k}     = KL[ N(μ_{t+k}, v_{t+k}) ‖ N(m⁽ᵏ⁾_{t+k}, s dt) ]
    weight_prior = |W|² / 2 s_w²                        (radial basis functions)
    w_k          = decay^(k-1) / Σ_j decay^(j-1)
    KL(q ‖ p)    = ½ Σ_d [ ln(p/q) + (μ_q - μ_p)² / p + q/p - 1 ]
    loss         = -(1/T) mean_B [ ell - β (kl_first + kl_steps) ] + weight_prior / N

With one step, no mask and β = 1 this is the evidence lower bound. Gradients flow into both sides of
each KL.

bayes_filter, n channels: with r = y - h(x_p), Λ = Hᵀ R⁻¹ H, η = Hᵀ R⁻¹ r and the covariance P of
the predicted state,

    innovation_nll = -ln N(r; 0, H P Hᵀ + R) / n
                   = ½ [ n ln 2π + ln|R| + ln|I + ΛP| + rᵀ R⁻¹ r - ηᵀ P (I + ΛP)⁻¹ η ] / n
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, SeqVaeTraining

# Optimised terms by family: those of the ELBO, or the filter's negative log evidence.
TERMS = {
    "seq_vae": ("ell", "kl_first", "kl_steps", "weight_prior"),
    "bayes_filter": ("innovation_nll",),
}
LOG_2PI = math.log(2 * math.pi)


def terms(config: ActiveDynamicsConfig) -> tuple[str, ...]:
    """Returns the names of the family's terms; each is a recorded metric."""
    return TERMS["bayes_filter" if config.brings_env else config.network.family]


def weights(times: int, transitions: int, beta: float) -> dict[str, float]:
    return {
        "ell": -1 / times,
        "kl_first": beta / times,
        "kl_steps": beta / times,
        "weight_prior": 1 / transitions,
    }


def beta_at(config: SeqVaeTraining, updates: int) -> float:
    """Returns β after some updates: its value at once, or linearly from 0."""
    share = 1.0 if config.anneal_kind == "none" else min(1.0, updates / config.anneal)
    return config.beta * share


def horizon_weights(horizons: int, decay: float) -> Float[Tensor, " horizon"]:
    """Computes w_k."""
    powers = decay ** torch.arange(horizons, dtype=torch.float32)
    return powers / powers.sum()


def horizon_mask_weights(
    weights_k: Float[Tensor, " horizon"], times: int
) -> Float[Tensor, "horizon time_m1"]:
    """Computes the weight of the KL of k steps from t: w_k, and 0 if t + k is beyond the window."""
    ahead = torch.arange(1, len(weights_k) + 1, device=weights_k.device)
    start = torch.arange(1, times, device=weights_k.device)
    return weights_k[:, None] * (start + ahead[:, None] <= times)


def gaussian(
    error: Float[Tensor, "lead obs *batch"], variance: Float[Tensor, " obs"]
) -> Float[Tensor, "lead *batch"]:
    """Computes ln p(y) of y = mean + error, summed over channels."""
    squares = variance.reciprocal() @ error.flatten(2).square()
    constant = variance.log().sum() + len(variance) * LOG_2PI
    return -0.5 * (squares + constant).unflatten(1, error.shape[2:])


def poisson(
    y: Float[Tensor, "obs *#batch"], log_rate: Float[Tensor, "lead obs *batch"]
) -> Float[Tensor, "lead *batch"]:
    """Computes ln p(y) of counts, summed over channels."""
    return (y * log_rate - log_rate.exp()).sum(1) - torch.lgamma(y + 1).sum(0)


def kl(
    mean_q: Float[Tensor, "*#batch d"],
    variance_q: Float[Tensor, "*#batch d"],
    mean_p: Float[Tensor, "*#batch d"],
    variance_p: Float[Tensor, "*#batch d"],
) -> Float[Tensor, "*batch"]:
    """Computes KL(q ‖ p) of normal distributions with independent dimensions, summed over them."""
    ratio = variance_q / variance_p
    return 0.5 * ((mean_q - mean_p).square() / variance_p + ratio - ratio.log() - 1).sum(-1)


def weight_prior(weight: Float[Tensor, "*any"], variance: float) -> Float[Tensor, ""]:
    """Computes -ln p(W) up to a constant, of independent weights of this variance."""
    return weight.square().sum() / (2 * variance)


def innovation_nll(
    channels: Any,
    x: Float[Tensor, "*batch d"],
    covariance: Float[Tensor, "*batch d d"],
    y: Float[Tensor, "*batch obs"],
) -> Float[Tensor, "*batch"]:
    """Computes nats per channel of observations of a state N(x, P), by d x d matrices.

    channels: `Emission`, or others with its methods. covariance: P.
    """
    residual = y - channels.mean(x)
    noise_variance = channels.variance(x)
    information_vector = channels.information_vector(y, x)
    damped = channels.precision(x) @ covariance
    damped = damped + torch.eye(damped.shape[-1], dtype=damped.dtype, device=damped.device)
    solution = covariance @ torch.linalg.solve(damped, information_vector[..., None])
    explained = (information_vector * solution[..., 0]).sum(-1)
    logdets = noise_variance.log().sum(-1) + torch.linalg.slogdet(damped).logabsdet
    squares = (residual.square() / noise_variance).sum(-1)
    count = y.shape[-1]
    return 0.5 * (count * LOG_2PI + logdets + squares - explained) / count
