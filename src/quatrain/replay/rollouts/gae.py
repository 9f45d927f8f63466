"""rewards and values of a rollout -> advantages and returns, by three implementations of one recurrence."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.signal import lfilter
from torch import Tensor

How = Literal["auto", "scan", "lfilter", "loop"]


class Trace(NamedTuple):
    """What advantages are made of; rewards and values may have a last axis of components."""

    rewards: Float[Tensor, "time lanes *components"]
    values: Float[Tensor, "time lanes *components"]
    next_values: Float[Tensor, "time lanes *components"]
    terminated: Bool[Tensor, "time lanes"]
    truncated: Bool[Tensor, "time lanes"]


class Advantages(NamedTuple):
    """returns = advantage + value: what a value learns."""

    advantage: Float[Tensor, "time lanes *components"]
    returns: Float[Tensor, "time lanes *components"]


def advantages(trace: Trace, discount: float, gae_lambda: float, how: How) -> Advantages:
    """'High-Dimensional Continuous Control Using Generalized Advantage Estimation' (ICLR 2016), eq. 16, by component.

    δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t)
    A_t = δ_t + γ λ (1 − terminated_t)(1 − truncated_t) A_{t+1}      A_T = 0      R_t = A_t + V(s_t)

    As it is linear, a weighted sum over components is the advantage of the weighted rewards and values.
    """
    ended, values = trace.terminated | trace.truncated, trace.values.detach()
    terminated = trace.terminated.reshape(*ended.shape, *[1] * (values.ndim - ended.ndim))
    delta = (
        trace.next_values.masked_fill(terminated, 0).mul_(discount).add_(trace.rewards).sub_(values)
    )
    coef = ended.logical_not().to(values.dtype).mul_(discount * gae_lambda)
    advantage = gae(delta, coef, how)
    return Advantages(advantage, advantage + values)


def gae(
    delta: Float[Tensor, "time lanes *components"],
    coef: Float[Tensor, "time lanes"],
    how: How = "auto",
) -> Float[Tensor, "time lanes *components"]:
    """A_t = delta_t + coef_t A_{t+1} of each lane, with A = 0 after the last; no gradient passes."""
    delta, coef = delta.detach(), coef.detach()
    lanes = delta.flatten(1)
    if delta.ndim > 2:
        coef = coef.reshape(*coef.shape, *[1] * (delta.ndim - 2)).expand_as(delta).flatten(1)
    chosen = fastest(lanes, coef) if how == "auto" else how
    return IMPLEMENTATIONS[chosen](lanes, coef).reshape(delta.shape)


def fastest(
    delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]
) -> Literal["scan", "lfilter", "loop"]:
    """What takes the least time: a loop costs by step, a scan by step and lane, a filter by both, on a CPU."""
    steps, lanes = delta.shape
    if delta.device.type != "cpu":
        return "scan"
    if lanes >= steps and lanes > 1:
        return "loop"
    return "lfilter" if lanes == 1 or (coef[:-1] == coef[0, 0]).all() else "scan"


def gae_loop(
    delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]
) -> Float[Tensor, "time lanes"]:
    """The recurrence as it stands, from the end: time operations on all lanes, which on a CPU numpy calls sooner."""
    if delta.is_cpu:
        found = _loop_on_host(delta.numpy(), coef.numpy())
        return torch.from_numpy(found)
    backwards = reversed(list(zip(delta.unbind(), coef.unbind(), strict=True)))
    rows = [next(backwards)[0]]
    for delta_b, coef_b in backwards:
        rows.append(torch.addcmul(delta_b, coef_b, rows[-1]))
    return torch.stack(rows[::-1])


def _loop_on_host(delta_tb: np.ndarray, coef_tb: np.ndarray) -> np.ndarray:
    found = delta_tb.copy()
    later, carried = found[-1], np.empty_like(found[0])
    for row, coef_b in zip(found[-2::-1], coef_tb[-2::-1], strict=True):
        np.multiply(coef_b, later, carried)
        np.add(row, carried, row)
        later = row
    return found


def gae_scan(
    delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]
) -> Float[Tensor, "time lanes"]:
    """All steps at once, log2(time) times; each time what a step has summed reaches twice as far (Hillis, Steele).

    `summed[t]` holds deltas t to t + reach - 1, and `coef[t]`, kept where it is read, the product over these steps.
    """
    steps, reach, summed = len(delta), 1, delta
    while reach < steps:
        nearer = torch.addcmul(summed[:-reach], coef[: steps - reach], summed[reach:])
        summed = torch.cat([nearer, summed[-reach:]])
        coef = coef[:-reach] * coef[reach:]
        reach *= 2
    return summed


def gae_lfilter(
    delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]
) -> Float[Tensor, "time lanes"]:
    """A linear filter of one coefficient, on the CPU, for coefficients that are that one or 0.

    The filter knows no 0: it carries what comes after a cut back over it. How much that is, is known from a first
    run, F, since A_{t+1} = F_{t+1} − c^{u−t} F_{u+1} where u is the lane's next cut; a second run starts without it.

    Raises:
        ValueError: there are more coefficients than one and 0.
    """
    delta_tb, coef_tb = delta.cpu().numpy(), coef.cpu().numpy()
    factor = coef_tb.max()
    cut = coef_tb[:-1] != factor
    found = _filtered(delta_tb, factor)
    if cut.any():
        if coef_tb[:-1][cut].any():
            raise ValueError(
                "lfilter needs one coefficient, or 0 where an episode ends; use scan or loop for others."
            )
        lane, time = np.nonzero(cut.T)
        carried, same = found[time + 1, lane], lane[1:] == lane[:-1]
        carried[:-1] -= same * factor ** (same * np.diff(time)) * carried[1:]
        delta_tb = delta_tb.copy()
        delta_tb[time, lane] -= factor * carried
        found = _filtered(delta_tb, factor)
    return torch.from_numpy(found).to(delta.device)


def _filtered(delta: np.ndarray, factor: np.floating) -> np.ndarray:
    numerator, denominator = np.ones(1, delta.dtype), np.array([1, -factor], delta.dtype)
    return lfilter(numerator, denominator, delta[::-1], axis=0)[::-1].copy()


IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loop": gae_loop,
    "scan": gae_scan,
    "lfilter": gae_lfilter,
}


def normalised(advantage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Of mean 0 and deviation 1 over all; equal ones give zeros, hence the float64: their mean must not be rounded."""
    wide = advantage.double()
    return ((wide - wide.mean()) / (wide.std(correction=0) + 1e-8)).to(advantage.dtype)
