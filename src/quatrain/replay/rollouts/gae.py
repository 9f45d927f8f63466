"""rewards and values of a rollout -> advantages and returns, by three implementations of one
recurrence.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.signal import lfilter
from torch import Tensor

Implementation = Literal["auto", "scan", "lfilter", "loop"]


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


def advantages(
    trace: Trace,
    discount: float,
    gae_lambda: float,
    implementation: Implementation,
) -> Advantages:
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
    advantage = gae(delta, coef, implementation)
    return Advantages(advantage, advantage + values)


def gae(
    delta: Float[Tensor, "time env *components"],
    coef: Float[Tensor, "time env"],
    implementation: Implementation = "auto",
) -> Float[Tensor, "time env *components"]:
    """Computes A_t = delta_t + coef_t A_{t+1} for each environment, with A = 0 after the last step.

    Gradients are not propagated.
    """
    columns = delta.detach().flatten(1)
    per_env = coef.detach().reshape(*coef.shape, *[1] * (delta.ndim - 2))
    coef = per_env.expand_as(delta).flatten(1)
    name = fastest(columns, coef) if implementation == "auto" else implementation
    return IMPLEMENTATIONS[name](columns, coef).reshape(delta.shape)


def fastest(
    delta: Float[Tensor, "time env"],
    coef: Float[Tensor, "time env"],
) -> Literal["scan", "lfilter", "loop"]:
    """Returns the implementation that takes the least time for these sizes.

    The time of the loop grows with the steps, that of the scan with steps and environments, that of
    the filter with both, on the CPU only.
    """
    steps, envs = delta.shape
    if delta.device.type != "cpu":
        return "scan"
    if envs >= steps and envs > 1:
        return "loop"
    return "lfilter" if envs == 1 or (coef[:-1] == coef[0, 0]).all() else "scan"


def gae_loop(
    delta: Float[Tensor, "time env"],
    coef: Float[Tensor, "time env"],
) -> Float[Tensor, "time env"]:
    """Computes the recurrence step by step from the end; on the CPU in numpy, whose calls have less
    overhead.
    """
    if delta.is_cpu:
        return torch.from_numpy(_numpy_loop(delta.numpy(), coef.numpy()))
    backwards = reversed(list(zip(delta.unbind(), coef.unbind(), strict=True)))
    advantages_b = [next(backwards)[0]]
    for delta_b, coef_b in backwards:
        advantages_b.append(torch.addcmul(delta_b, coef_b, advantages_b[-1]))
    return torch.stack(advantages_b[::-1])


def _numpy_loop(delta_tb: np.ndarray, coef_tb: np.ndarray) -> np.ndarray:
    advantage_tb = delta_tb.copy()
    next_advantage = advantage_tb[-1]
    discounted = np.empty_like(next_advantage)
    for advantage_b, coef_b in zip(advantage_tb[-2::-1], coef_tb[-2::-1], strict=True):
        np.multiply(coef_b, next_advantage, discounted)
        np.add(advantage_b, discounted, advantage_b)
        next_advantage = advantage_b
    return advantage_tb


def gae_scan(
    delta: Float[Tensor, "time env"],
    coef: Float[Tensor, "time env"],
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


def gae_lfilter(
    delta: Float[Tensor, "time env"],
    coef: Float[Tensor, "time env"],
) -> Float[Tensor, "time env"]:
    """Computes the recurrence as a linear filter on the CPU, for coefficients c that are all equal
    or 0.

    A filter has a constant coefficient: it carries advantages from behind the end of an episode
    across it. A first run F says how much: A_{t+1} = F_{t+1} − c^{u−t} F_{u+1}, where u is the
    environment's next end after t. A second run starts without that amount.

    Raises:
        ValueError: coefficients other than one value and 0.
    """
    delta_tb = delta.cpu().numpy()
    coef_tb = coef.cpu().numpy()
    factor = coef_tb.max()
    ends = coef_tb[:-1] != factor
    result = _filter(delta_tb, factor)
    if ends.any():
        if coef_tb[:-1][ends].any():
            raise ValueError(
                "lfilter needs one coefficient, or 0 where an episode ends; "
                "use scan or loop for others."
            )
        env, time = np.nonzero(ends.T)
        carried = result[time + 1, env]
        same_env = env[1:] == env[:-1]
        carried[:-1] -= same_env * factor ** (same_env * np.diff(time)) * carried[1:]
        delta_tb = delta_tb.copy()
        delta_tb[time, env] -= factor * carried
        result = _filter(delta_tb, factor)
    return torch.from_numpy(result).to(delta.device)


def _filter(delta: np.ndarray, factor: np.floating) -> np.ndarray:
    denominator = np.array([1, -factor], delta.dtype)
    return lfilter(np.ones(1, delta.dtype), denominator, delta[::-1], axis=0)[::-1].copy()


IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loop": gae_loop,
    "scan": gae_scan,
    "lfilter": gae_lfilter,
}


def normalise(advantage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Returns advantages with mean 0 and standard deviation 1 over all elements; equal advantages
    become zeros.

    In float64: the mean of equal float32 numbers may be rounded.
    """
    wide = advantage.double()
    return ((wide - wide.mean()) / (wide.std(correction=0) + 1e-8)).to(advantage.dtype)
