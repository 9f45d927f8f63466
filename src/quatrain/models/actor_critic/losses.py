"""log-probabilities, values and entropies of a minibatch -> the loss of proximal policy
optimisation.

'Proximal Policy Optimization Algorithms' (2017), eqs. 7 and 9, for sample b with raw action z_b,
policy π and value V in training, and the rollout's ln π_old, V_old, advantage Â and return R:

    ρ_b    = π(z_b | s_b) / π_old(z_b | s_b)
    loss_policy_b  = −min(ρ_b Â_b, clip(ρ_b, 1−ε, 1+ε) Â_b)
    loss_value_b   = Σ_c w_c (V_bc − R_bc)²
    loss_entropy_b = −H(π(· | s_b))                  of the executed action
    loss = mean_b loss_policy_b + c_v loss_value_b + c_H loss_entropy_b

If κ > 0, each squared error of loss_value_b is the larger of that of V and that of
V_old + clip(V − V_old, −κ, κ).

The rollout's quantities carry no gradient. c runs over the components of the reward, or over their
weighted sum alone; w_c are the weights of `ppo.value_weights`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

TERMS = ("loss_policy", "loss_value", "loss_entropy")


def terms(config: Any) -> tuple[str, ...]:
    return TERMS


def ratio(
    log_prob: Float[Tensor, " batch"], old_log_prob: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    return (log_prob - old_log_prob).exp()


def policy(
    ratio_b: Float[Tensor, " batch"], advantage: Float[Tensor, " batch"], clip: float
) -> Float[Tensor, " batch"]:
    """Computes the clipped surrogate, which gains nothing where ρ moves beyond 1 ± ε in the
    advantage's direction.
    """
    return -torch.minimum(ratio_b * advantage, ratio_b.clamp(1 - clip, 1 + clip) * advantage)


def value(
    values: Float[Tensor, "batch *component"],
    old_values: Float[Tensor, "batch *component"],
    returns: Float[Tensor, "batch *component"],
    weights: Float[Tensor, "*component"],
    clip: float,
) -> Float[Tensor, " batch"]:
    """Computes squared errors, weighted and summed over components; with a clip of 0 values are not
    clipped.
    """
    errors = (values - returns).square()
    if clip > 0:
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        errors = torch.maximum(errors, (clipped - returns).square())
    return (errors * weights).reshape(len(errors), -1).sum(1)


def component_weights(
    weights: Float[Tensor, "*component"], std: Float[Tensor, "*component"]
) -> Float[Tensor, "*component"]:
    """Computes w_c² / Σ_k (w_k σ_k)²: errors in units of the total's variance, with components
    taken as independent.

    With 1 / σ_c² a component that hardly varies would weigh as much as any other.
    """
    squares = weights.square()
    return squares / (squares * std.square()).sum()


def clip_fraction(ratio_b: Float[Tensor, " batch"], clip: float) -> Float[Tensor, ""]:
    """Computes the share of samples whose ρ is outside 1 ± ε."""
    return ((ratio_b - 1).abs() > clip).to(ratio_b.dtype).mean()


def explained_variance(
    values: Float[Tensor, "batch *component"], returns: Float[Tensor, "batch *component"]
) -> Float[Tensor, ""]:
    """Computes 1 − Var(R − V) / Var(R), with variances summed over components.

    1 is perfect, 0 as good as a constant; 0 where all returns are equal.
    """
    wide = returns.double()
    variance = wide.var(0, correction=0).sum()
    error_variance = (wide - values).var(0, correction=0).sum()
    return torch.where(variance > 0, 1 - error_variance / variance, 0.0).to(returns.dtype)
