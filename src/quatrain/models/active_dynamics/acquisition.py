"""a learner's surrogate, and actions it might take -> how much it would learn from each.

Higher is better. Candidates are imagined by the mean dynamics z <- z + (f(z) + Ba) dt. Φ [H, C] are the features φ at
the H moments a decision is taken, Σ the covariance of the weights of one output, P that of all weights, Γ = mean_g φφᵀ
over the region of interest. Λ = Hᵀ R⁻¹ H = Lᵀ L is what a look at the state tells of it, and a decision that is held
for `hold` steps of dt shows the field with the noise q = (Q dt + mean diag Λ⁻¹) / (hold dt²).

    variance     = tr[ (qI + ΦΣΦᵀ)⁻¹ ΦΣΓΣΦᵀ ]        expected drop of an output's variance over the region: A-optimal
    information  = d/2 logdet(I + ΦΣΦᵀ/q)            nats about the weights: D-optimal
    fisher_d     = 1/2 logdet(I + APAᵀ)              the same, seen through the states that the weights lead to
    fisher_a     = tr[ (I + APAᵀ)⁻¹ AP PAᵀ ]         drop of the trace of P
    disagreement = mean_t mean_i Var_m f_mi(z_t)     of the members m of an ensemble
    action_cost  = -Σ |a|²

    A = rows L S_t       S_{t+1} = (I + dt J) S_t + dt (I ⊗ φᵀ),  S_0 = 0

Each function makes what the candidates of a plan share, once, and gives back the value of imagined paths.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.frameworks.torch import threads
from quatrain.models.active_dynamics.config import Acquisition
from quatrain.models.active_dynamics.learner import Surrogate

OUTSIDE = -10.0
"""Value of a unit of distance by which a path leaves the region and its margin."""
WORST = -1e9
"""Of a candidate whose value is not finite, which the others do not feel."""
LEAST_NOISE = 1e-5
"""q in units of the largest variance of a weight: single precision cannot tell less noise from none."""


class Imagined(NamedTuple):
    """Paths of the mean dynamics, by candidate.

    states: now, and after each step. features: when each decision is taken. actions: the decisions.
    """

    states: Float[Tensor, "learner n moment d"]
    features: Float[Tensor, "learner n decision feature"]
    actions: Float[Tensor, "learner n decision action"]


Value = Callable[[Imagined], Float[Tensor, "learner n"]]
Score = Callable[[Float[Tensor, "learner n decision action"]], Float[Tensor, "learner n"]]


@threads.single_threaded(if_small=True)
def scorer(surrogate: Surrogate, config: Acquisition, hold: int) -> Score:
    """Weighted values of actions, less what leaving the region costs.

    Each value counts in units of its largest size among the candidates it is asked for together.
    """
    weighted = [
        (weight, VALUES[name](surrogate, hold))
        for name, weight in config.weights.items()
        if weight > 0
    ]
    reach = surrogate.region_radius + config.margin

    def score(actions: Float[Tensor, "learner n decision action"]) -> Float[Tensor, "learner n"]:
        imagined = imagine(surrogate, actions, hold)
        farthest = imagined.states[:, :, 1:].square().sum(3).amax(2).sqrt()
        total = (farthest - reach).clamp(min=0) * OUTSIDE
        for weight, value in weighted:
            found = value(imagined)
            total = torch.add(total, found / _largest(found), alpha=weight)
        return total.nan_to_num(nan=WORST, posinf=WORST, neginf=WORST)

    return score


def imagine(
    surrogate: Surrogate, actions: Float[Tensor, "learner n decision action"], hold: int
) -> Imagined:
    """Paths from the states of now, each decision held for some steps."""
    pushes = (actions @ (surrogate.control.T * surrogate.dt)).unbind(2)
    state = surrogate.state[:, None].expand(-1, actions.shape[1], -1)
    states, features = [state], []
    for push in pushes:
        for step in range(hold):
            felt = surrogate.field(state)
            if step == 0:
                features.append(felt.features)
            state = torch.add(state + push, felt.value, alpha=surrogate.dt)
            states.append(state)
    return Imagined(torch.stack(states, 2), torch.stack(features, 2), actions)


def variance(surrogate: Surrogate, hold: int) -> Value:
    """q tr[ (I + KΦᵀ)⁻¹ KΓKᵀ ] with K = ΦΣ/q."""
    region, noise = surrogate.region, _noise(surrogate, hold)
    assert region is not None
    known = _per(noise, surrogate)

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        told = _times(imagined.features, known)
        return noise[:, None] * _solved_trace(
            told @ imagined.features.mT, _times(told, region) @ told.mT
        )

    return value


def information(surrogate: Surrogate, hold: int) -> Value:
    """d/2 logdet(I + ΦΣΦᵀ/q)."""
    known, d = _per(_noise(surrogate, hold), surrogate), surrogate.state.shape[1]

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        return d * _half_logdet(_times(imagined.features, known) @ imagined.features.mT)

    return value


def fisher_d(surrogate: Surrogate, _hold: int) -> Value:
    """1/2 logdet(I + APAᵀ)."""
    look = _look(surrogate)

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        return _half_logdet(look(imagined).signal)

    return value


def fisher_a(surrogate: Surrogate, _hold: int) -> Value:
    """tr[ (I + APAᵀ)⁻¹ AP PAᵀ ]."""
    look = _look(surrogate)

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        seen = look(imagined)
        gain = seen.led @ (seen.told @ seen.told.mT) @ seen.led.mT
        return _solved_trace(seen.signal, gain)

    return value


def disagreement(surrogate: Surrogate, _hold: int) -> Value:
    """mean_t mean_i Var_m f_mi(z_t), where the steps start."""
    members = surrogate.members
    assert members is not None

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        starts = imagined.states[:, :, :-1]
        found = members(starts.flatten(1, 2)).var(2, correction=0).mean(2)
        return found.unflatten(1, starts.shape[1:3]).mean(2)

    return value


def action_cost(_surrogate: Surrogate, _hold: int) -> Value:
    """-Σ |a|²."""

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        return -imagined.actions.square().sum((2, 3))

    return value


VALUES: dict[str, Callable[[Surrogate, int], Value]] = {
    "variance": variance,
    "information": information,
    "fisher_d": fisher_d,
    "fisher_a": fisher_a,
    "disagreement": disagreement,
    "action_cost": action_cost,
}


def responses(
    jacobians: Float[Tensor, "path step d d"], dt: float
) -> Float[Tensor, "path step d step d"]:
    """∂z_{t+1}/∂v_s of a velocity v_s that is added in step s: S_{t+1} = Σ_s response_ts ⊗ φ_sᵀ."""
    paths, steps, d, _ = jacobians.shape
    one = torch.eye(d, dtype=jacobians.dtype, device=jacobians.device)
    state, found = jacobians.new_zeros(paths, d, steps * d), []
    for step, transition in enumerate((one + dt * jacobians).unbind(1)):
        state = torch.bmm(transition, state)
        state[:, :, step * d : (step + 1) * d] = dt * one
        found.append(state)
    return torch.stack(found, 1).view(paths, steps, d, steps, d)


class FisherFactors(NamedTuple):
    """What the states of paths tell of all weights: A = led (I ⊗ Φ), AP = led told and APAᵀ = signal."""

    led: Float[Tensor, "learner n seen moved"]
    told: Float[Tensor, "learner n moved weight"]
    signal: Float[Tensor, "learner n seen seen"]


def _look(surrogate: Surrogate) -> Callable[[Imagined], FisherFactors]:
    """Blocks of P meet features first, and sensitivities [d, d·C] of a step are never made."""
    d, covariance = surrogate.state.shape[1], surrogate.full_covariance
    assert covariance is not None
    blocks = (
        covariance.unflatten(1, (d, -1)).transpose(1, 2).flatten(2)
    )  # row, feature, output · weight
    sight = _root(surrogate.precision)

    def look(imagined: Imagined) -> FisherFactors:
        starts = imagined.states[:, :, :-1]
        row, n, steps, _ = starts.shape
        at = starts.flatten(1, 2)
        features = surrogate.field(at).features.view(row, n, steps, -1)
        told = _times(features, blocks).view(row, n, steps * d, -1)
        between = (
            told.unflatten(3, (d, -1)).flatten(2, 3) @ features.mT
        )  # row, n, step · output · output, step
        between = between.unflatten(2, (steps * d, d)).mT.flatten(3)
        jacobians = surrogate.jacobian(at).reshape(row * n, steps, d, d)
        led = responses(jacobians, surrogate.dt).view(row, n * steps, d, steps * d)
        led = torch.einsum("rij,rtjs->rtis", sight, led).reshape(row, n, steps * d, steps * d)
        return FisherFactors(led, told, led @ between @ led.mT)

    return look


def _root(precision: Float[Tensor, "learner d d"]) -> Float[Tensor, "learner d d"]:
    """L of Λ = Lᵀ L, singular or not."""
    values, vectors = torch.linalg.eigh(precision)
    return values.clamp(min=0).sqrt()[:, :, None] * vectors.mT


def _noise(surrogate: Surrogate, hold: int) -> Float[Tensor, " learner"]:
    """q."""
    assert surrogate.covariance is not None
    least = LEAST_NOISE * surrogate.covariance.diagonal(dim1=1, dim2=2).amax(1)
    return torch.maximum(surrogate.step_variance / (hold * surrogate.dt**2), least)


def _per(
    noise: Float[Tensor, " learner"], surrogate: Surrogate
) -> Float[Tensor, "learner feature feature"]:
    """Σ/q."""
    assert surrogate.covariance is not None
    return surrogate.covariance / noise[:, None, None]


def _times(
    of_paths: Tensor, matrix: Float[Tensor, "*learner feature other"]
) -> Float[Tensor, "learner n moment other"]:
    """All paths of a row at once."""
    return (of_paths.flatten(1, 2) @ matrix).unflatten(1, of_paths.shape[1:3])


def _factor(signal: Float[Tensor, "learner n seen seen"]) -> Float[Tensor, "learner n seen seen"]:
    """Cholesky factor of I + signal; NaN where rounding has left none."""
    one = torch.eye(signal.shape[-1], dtype=signal.dtype, device=signal.device)
    factor, failed = torch.linalg.cholesky_ex(signal + one)
    return factor.masked_fill((failed > 0)[:, :, None, None], torch.nan)


def _half_logdet(signal: Float[Tensor, "learner n seen seen"]) -> Float[Tensor, "learner n"]:
    """1/2 logdet(I + signal)."""
    return _factor(signal).diagonal(dim1=2, dim2=3).log().sum(2)


def _solved_trace(
    signal: Float[Tensor, "learner n seen seen"], gain: Float[Tensor, "learner n seen seen"]
) -> Float[Tensor, "learner n"]:
    """tr[ (I + signal)⁻¹ gain ] of symmetric matrices."""
    return (torch.cholesky_inverse(_factor(signal)) * gain).sum((2, 3))


def _largest(value: Float[Tensor, "learner n"]) -> Float[Tensor, "learner 1"]:
    """Of the finite sizes; 1 where all are 0."""
    largest = value.nan_to_num(nan=0, posinf=0, neginf=0).abs().amax(1, keepdim=True)
    return torch.where(largest > 0, largest, 1)
