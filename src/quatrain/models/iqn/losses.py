"""values at quantiles, targets -> the quantile Huber loss

'Implicit Quantile Networks' (ICML 2018), eqs. 2-4, for sample b, online quantiles τ_q, target
quantiles τ'_p:

    y_bp = R_b + g_b Z_target(s'_b, τ'_p)[a*_b]      u_bqp = y_bp − Z(s_b, τ_q)[a_b]
    loss = mean_b Σ_q mean_p |τ_bq − 1{u < 0}| H_κ(u) / κ

Where all |u| <= κ its minimum is the τ-expectile of the targets, not their quantile.
"""

import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Int

from quatrain.models.iqn.config import LearnerConfig

TERMS = ("quantile_huber",)


def terms(config: LearnerConfig) -> tuple[str, ...]:
    return TERMS


def greedy_action(
    values: Float[Array, "batch quantile action"], legal: Bool[Array, "batch action"] | None = None
) -> Int[Array, " batch"]:
    """Returns the legal action with the greatest mean over quantiles; the first of equals."""
    means = values.mean(1)
    return (means if legal is None else jnp.where(legal, means, -jnp.inf)).argmax(-1)


def index_by_action(
    values: Float[Array, "batch quantile action"], action: Int[Array, " batch"]
) -> Float[Array, "batch quantile"]:
    return jnp.take_along_axis(values, action[:, None, None], axis=-1)[..., 0]


def bootstrap_targets(
    returns: Float[Array, " batch"],
    bootstrap: Float[Array, " batch"],
    next_values: Float[Array, "batch target_quantile"],
) -> Float[Array, "batch target_quantile"]:
    """Computes y = R + g·Z."""
    return returns[:, None] + bootstrap[:, None] * next_values


def td_errors(
    values: Float[Array, "batch quantile"], targets: Float[Array, "batch target_quantile"]
) -> Float[Array, "batch quantile target_quantile"]:
    """Computes u = y − Z of each pair of an online and a target quantile."""
    return targets[:, None, :] - values[:, :, None]


def quantile_huber(
    errors_bqp: Float[Array, "batch quantile target_quantile"],
    taus: Float[Array, "batch quantile"],
    kappa: float,
) -> Float[Array, " batch"]:
    """Computes Σ_q mean_p |τ_q − 1{u < 0}| H_κ(u) / κ per sample; τ are the online quantiles."""
    weight = jnp.abs(taus[:, :, None] - (errors_bqp < 0))
    huber = optax.losses.huber_loss(errors_bqp, delta=kappa)
    return (weight * huber / kappa).mean(-1).sum(-1)


def quantile_spread(
    values: Float[Array, "batch quantile"], taus: Float[Array, "batch quantile"]
) -> Float[Array, " batch"]:
    """Computes Z at the largest τ of a sample minus Z at its smallest."""
    ends = jnp.stack([taus.argmax(-1), taus.argmin(-1)], axis=-1)
    high, low = jnp.take_along_axis(values, ends, axis=-1).T
    return high - low
