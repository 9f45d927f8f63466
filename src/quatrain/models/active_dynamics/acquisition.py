"""surrogate, candidate actions -> how much a learner would learn from each.

Higher is better. Candidates follow the mean dynamics z <- z + (f(z) + Ba) dt. Φ [H, C] are the
features φ at the H decisions, Σ the covariance of the weights of one output, P that of all weights,
Γ = mean_g φφᵀ over the region of interest. Λ = Hᵀ R⁻¹ H = Lᵀ L is the precision of an observed
state, and a decision that lasts `hold` steps of dt measures the field with noise
q = (Q dt + mean diag Λ⁻¹) / (hold dt²).

    variance     = tr[ (qI + ΦΣΦᵀ)⁻¹ ΦΣΓΣΦᵀ ]      expected drop of an output's variance: A-optimal
    fisher_a     = tr[ (I + APAᵀ)⁻¹ AP PAᵀ ]       drop of the trace of P
    disagreement = mean_t mean_i Var_m f_mi(z_t)   of the members m of an ensemble

    A stacks L S_t over t;  S_{t+1} = (I + dt J) S_t + dt (I ⊗ φᵀ),  S_0 = 0

Each function computes once what the candidates of a plan share, and returns the value of paths.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.frameworks.torch import single_threaded
from quatrain.models.active_dynamics.config import Acquisition
from quatrain.models.active_dynamics.family import Surrogate

# Value per unit of distance beyond the region and its margin.
OUTSIDE = -10.0
# Score of a candidate whose value is not finite; the other scores do not depend on it.
WORST = -1e9
# Least q in units of the largest weight variance; less is lost in single precision.
LEAST_NOISE = 1e-5


class Imagined(NamedTuple):
    """Holds the paths of candidates under the mean dynamics.

    states: now, and after each step. features: at each decision.
    """

    states: Float[Tensor, "learner n moment d"]
    features: Float[Tensor, "learner n decision feature"]


Value = Callable[[Imagined], Float[Tensor, "learner n"]]
Score = Callable[[Float[Tensor, "learner n decision action"]], Float[Tensor, "learner n"]]


@single_threaded(if_small=True)
def scorer(surrogate: Surrogate, config: Acquisition, hold: int) -> Score:
    """Returns a function of actions: their weighted values, minus the cost of leaving the region.

    Each value is divided by its largest finite size among the candidates of a call.
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
            values = value(imagined)
            largest = values.nan_to_num(nan=0, posinf=0, neginf=0).abs().amax(1, keepdim=True)
            relative = values / torch.where(largest > 0, largest, 1)
            total = torch.add(total, relative, alpha=weight)
        return total.nan_to_num(nan=WORST, posinf=WORST, neginf=WORST)

    return score


def imagine(
    surrogate: Surrogate, actions: Float[Tensor, "learner n decision action"], hold: int
) -> Imagined:
    """Computes paths from the current states, with each decision held for `hold` steps."""
    pushes = (actions @ (surrogate.control.T * surrogate.dt)).unbind(2)
    state = surrogate.state[:, None].expand(-1, actions.shape[1], -1)
    states = [state]
    features = []
    for push in pushes:
        for step in range(hold):
            value, phi = surrogate.field(state)
            if step == 0:
                features.append(phi)
            state = torch.add(state + push, value, alpha=surrogate.dt)
            states.append(state)
    return Imagined(torch.stack(states, 2), torch.stack(features, 2))


def variance(surrogate: Surrogate, hold: int) -> Value:
    """Computes q tr[ (I + KΦᵀ)⁻¹ KΓKᵀ ] with K = ΦΣ/q."""
    region = surrogate.region
    assert region is not None
    assert surrogate.covariance is not None
    least = LEAST_NOISE * surrogate.covariance.diagonal(dim1=1, dim2=2).amax(1)
    noise = torch.maximum(surrogate.step_variance / (hold * surrogate.dt**2), least)  # q
    scaled = surrogate.covariance / noise[:, None, None]

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        gains = _times(imagined.features, scaled)
        drop = _times(gains, region) @ gains.mT
        return noise[:, None] * _solved_trace(gains @ imagined.features.mT, drop)

    return value


def fisher_a(surrogate: Surrogate, _hold: int) -> Value:
    """Computes tr[ (I + APAᵀ)⁻¹ AP PAᵀ ], with A = led (I ⊗ Φ).

    Blocks of P are multiplied by features first: sensitivities [d, d·C] are never materialised.
    """
    assert surrogate.full_covariance is not None
    d = surrogate.state.shape[1]
    by_output = surrogate.full_covariance.unflatten(1, (d, -1))
    blocks = by_output.transpose(1, 2).flatten(2)  # learner, feature, output · weight
    # Λ = Lᵀ L may be singular.
    values, vectors = torch.linalg.eigh(surrogate.precision)
    root = values.clamp(min=0).sqrt()[:, :, None] * vectors.mT

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        starts = imagined.states[:, :, :-1]
        learners, n, steps, _ = starts.shape
        features = surrogate.field(starts.flatten(1, 2)).features.view(learners, n, steps, -1)
        covariance = _times(features, blocks).view(learners, n, steps * d, -1)
        between = covariance.unflatten(3, (d, -1)).flatten(2, 3) @ features.mT
        # From (step · output · output, step) to (step · output, step · output).
        between = between.unflatten(2, (steps * d, d)).mT.flatten(3)
        led = _led_states(surrogate, root, starts)
        gain = led @ (covariance @ covariance.mT) @ led.mT
        return _solved_trace(led @ between @ led.mT, gain)

    return value


def disagreement(surrogate: Surrogate, _hold: int) -> Value:
    """Computes mean_t mean_i Var_m f_mi(z_t) at the starts of the steps."""
    members = surrogate.members
    assert members is not None

    def value(imagined: Imagined) -> Float[Tensor, "learner n"]:
        starts = imagined.states[:, :, :-1]
        variance = members(starts.flatten(1, 2)).var(2, correction=0).mean(2)
        return variance.unflatten(1, starts.shape[1:3]).mean(2)

    return value


VALUES: dict[str, Callable[[Surrogate, int], Value]] = {
    "variance": variance,
    "fisher_a": fisher_a,
    "disagreement": disagreement,
}


def responses(
    jacobians: Float[Tensor, "path step d d"], dt: float
) -> Float[Tensor, "path step d step d"]:
    """Computes ∂z_{t+1}/∂v_s of a velocity v_s added in step s.

    S_{t+1} = Σ_s response_ts ⊗ φ_sᵀ.
    """
    paths, steps, d, _ = jacobians.shape
    identity = torch.eye(d, dtype=jacobians.dtype, device=jacobians.device)
    state = jacobians.new_zeros(paths, d, steps * d)
    states = []
    for step, transition in enumerate((identity + dt * jacobians).unbind(1)):
        state = torch.bmm(transition, state)
        state[:, :, step * d : (step + 1) * d] = dt * identity
        states.append(state)
    return torch.stack(states, 1).view(paths, steps, d, steps, d)


def _led_states(
    surrogate: Surrogate,
    root: Float[Tensor, "learner d d"],
    starts: Float[Tensor, "learner n step d"],
) -> Float[Tensor, "learner n observed moved"]:
    """Computes L ∂z_{t+1}/∂v_s."""
    learners, n, steps, d = starts.shape
    jacobians = surrogate.jacobian(starts.flatten(1, 2)).reshape(learners * n, steps, d, d)
    moved = responses(jacobians, surrogate.dt).view(learners, n * steps, d, steps * d)
    led = torch.einsum("rij,rtjs->rtis", root, moved)
    return led.reshape(learners, n, steps * d, steps * d)


def _times(
    of_paths: Tensor, matrix: Float[Tensor, "*learner feature other"]
) -> Float[Tensor, "learner n moment other"]:
    return (of_paths.flatten(1, 2) @ matrix).unflatten(1, of_paths.shape[1:3])


def _solved_trace(
    signal: Float[Tensor, "learner n seen seen"], gain: Float[Tensor, "learner n seen seen"]
) -> Float[Tensor, "learner n"]:
    """Computes tr[ (I + signal)⁻¹ gain ] of symmetric matrices; NaN where rounding fails."""
    identity = torch.eye(signal.shape[-1], dtype=signal.dtype, device=signal.device)
    factor, failed = torch.linalg.cholesky_ex(signal + identity)
    factor = factor.masked_fill((failed > 0)[:, :, None, None], torch.nan)
    return (torch.cholesky_inverse(factor) * gain).sum((2, 3))
