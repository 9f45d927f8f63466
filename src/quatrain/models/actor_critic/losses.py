"""log-probabilities, values and entropies of a minibatch -> the loss of proximal policy optimisation.

'Proximal Policy Optimization Algorithms' (2017), eqs. 7 and 9, for sample b, its draw z_b, the policy π and value V
that are trained, and what the rollout stored of those that played: ln π_old, V_old, advantage Â and return R:

    ρ_b    = π(z_b | s_b) / π_old(z_b | s_b)
    loss_policy_b  = −min(ρ_b Â_b, clip(ρ_b, 1−ε, 1+ε) Â_b)
    loss_value_b   = Σ_c w_c (V_bc − R_bc)²    the worse of this and that of V_old + clip(V − V_old, −κ, κ) if κ > 0
    loss_entropy_b = −H(π(· | s_b))                  of the executed action
    loss = mean_b loss_policy_b + c_v loss_value_b + c_H loss_entropy_b

No gradient flows into what was stored. c are the components of the reward, or one for all of them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.actor_critic.config import ActorCriticConfig

TERMS = ("loss_policy", "loss_value", "loss_entropy")


def terms(config: ActorCriticConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def ratio(
    log_prob: Float[Tensor, " batch"], old_log_prob: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """ρ."""
    return (log_prob - old_log_prob).exp()


def policy(
    ratio_b: Float[Tensor, " batch"], advantage: Float[Tensor, " batch"], clip: float
) -> Float[Tensor, " batch"]:
    """The clipped surrogate: nothing is gained by moving ρ further than ε in the direction that pays."""
    return -torch.minimum(ratio_b * advantage, ratio_b.clamp(1 - clip, 1 + clip) * advantage)


def value(
    values: Float[Tensor, "batch *component"],
    old_values: Float[Tensor, "batch *component"],
    returns: Float[Tensor, "batch *component"],
    weights: Float[Tensor, "*component"],
    clip: float,
) -> Float[Tensor, " batch"]:
    """Squared errors, summed over components with their weights; a clip of 0 clips nothing."""
    errors = (values - returns).square()
    if clip > 0:
        near = old_values + (values - old_values).clamp(-clip, clip)
        errors = torch.maximum(errors, (near - returns).square())
    return (errors * weights).reshape(len(errors), -1).sum(1)


def entropy(entropy_b: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """What is minimised of it."""
    return -entropy_b


def clip_fraction(ratio_b: Float[Tensor, " batch"], clip: float) -> Float[Tensor, ""]:
    """Share of samples whose ρ left 1 ± ε."""
    return ((ratio_b - 1).abs() > clip).to(ratio_b.dtype).mean()


def explained_variance(
    values: Float[Tensor, "batch *component"], returns: Float[Tensor, "batch *component"]
) -> Float[Tensor, ""]:
    """1 − Var(R − V) / Var(R), variances summed over components: 1 is perfect, 0 as good as a constant.

    0 where all returns are equal: then there is nothing to explain.
    """
    wide = returns.double()
    of_returns, of_errors = (x.var(0, correction=0).sum() for x in (wide, wide - values))
    return torch.where(of_returns > 0, 1 - of_errors / of_returns, 0.0).to(returns.dtype)
