"""rewards and values of a rollout -> advantages and returns"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Trace(NamedTuple):
    """Holds the inputs of advantage estimation; rewards and values may have a last axis of
    components.
    """

    rewards: Float[Tensor, "time env *components"]
    values: Float[Tensor, "time env *components"]
    next_values: Float[Tensor, "time env *components"]
    terminated: Bool[Tensor, "time env"]
    truncated: Bool[Tensor, "time env"]


class Advantages(NamedTuple):
    """Holds advantages, and returns = advantage + value, the regression targets of the value
    function.
    """

    advantage: Float[Tensor, "time env *components"]
    returns: Float[Tensor, "time env *components"]


def advantages(trace: Trace, discount: float, gae_lambda: float) -> Advantages:
    """Computes generalised advantage estimates, separately for each component.

    'High-Dimensional Continuous Control Using Generalized Advantage Estimation' (ICLR 2016), eq.
    16:

        δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t)
        A_t = δ_t + γ λ (1 − terminated_t)(1 − truncated_t) A_{t+1},  A_T = 0
        R_t = A_t + V(s_t)

    It is linear: a weighted sum over components is the advantage of the weighted rewards and
    values.
    """
    ended = trace.terminated | trace.truncated
    values = trace.values.detach()
    terminated = trace.terminated.reshape(*ended.shape, *[1] * (values.ndim - ended.ndim))
    bootstrap = trace.next_values.masked_fill(terminated, 0).mul_(discount)
    delta = bootstrap.add_(trace.rewards).sub_(values)
    coef = ended.logical_not().to(values.dtype).mul_(discount * gae_lambda)
    advantage = gae(delta, coef)
    return Advantages(advantage, advantage + values)


def gae(
    delta: Float[Tensor, "time env *components"], coef: Float[Tensor, "time env"]
) -> Float[Tensor, "time env *components"]:
    """Computes A_t = delta_t + coef_t A_{t+1} for each environment, with A = 0 after the last step.

    Gradients are not propagated. On a CPU, step by step takes less time than the scan where steps
    are few, and rounds as a filter does where no episode ends.
    """
    columns = delta.detach().flatten(1)
    per_env = coef.detach().reshape(*coef.shape, *[1] * (delta.ndim - 2))
    coef = per_env.expand_as(delta).flatten(1)
    steps, envs = columns.shape
    if columns.is_cpu and (envs >= steps or (coef[:-1] == coef[0, 0]).all()):
        return torch.from_numpy(_loop(columns.numpy(), coef.numpy())).reshape(delta.shape)
    return gae_scan(columns, coef).reshape(delta.shape)


def _loop(
    delta_tb: Float[np.ndarray, "time env"], coef_tb: Float[np.ndarray, "time env"]
) -> Float[np.ndarray, "time env"]:
    """Computes the recurrence from the end, in numpy, whose calls have less overhead."""
    advantage_tb = delta_tb.copy()
    next_advantage = advantage_tb[-1]
    discounted = np.empty_like(next_advantage)
    for advantage_b, coef_b in zip(advantage_tb[-2::-1], coef_tb[-2::-1], strict=True):
        np.multiply(coef_b, next_advantage, discounted)
        np.add(advantage_b, discounted, advantage_b)
        next_advantage = advantage_b
    return advantage_tb


def gae_scan(
    delta: Float[Tensor, "time env"], coef: Float[Tensor, "time env"]
) -> Float[Tensor, "time env"]:
    """Computes all steps at once in log2(time) passes that double their reach (Hillis and Steele).

    `sums[t]` is the discounted sum of deltas t to t + reach - 1, and `coef[t]` the product of
    coefficients over these steps; only the products that are still needed are kept.
    """
    steps = len(delta)
    reach = 1
    sums = delta
    while reach < steps:
        extended = torch.addcmul(sums[:-reach], coef[: steps - reach], sums[reach:])
        sums = torch.cat([extended, sums[-reach:]])
        coef = coef[:-reach] * coef[reach:]
        reach *= 2
    return sums


def normalise(advantage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Returns advantages with mean 0 and standard deviation 1 over all elements; equal advantages
    become zeros.

    In float64: the mean of equal float32 numbers may be rounded.
    """
    wide = advantage.double()
    return ((wide - wide.mean()) / (wide.std(correction=0) + 1e-8)).to(advantage.dtype)
