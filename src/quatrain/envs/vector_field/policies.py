"""time, random numbers -> actions that ignore the state: open-loop baselines of planning.

random  uniform in the box, drawn in each transition
step    one such draw, repeated for many transitions
prbs    a corner of the box, repeated for a random time: a pseudo-random binary sequence
chirp   bound · sin(2π (f0 t + (f1 - f0) t² / 2T) + phase), at time t of T
off     zero
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class PolicySpec(NamedTuple):
    """Holds the parameters of the policies.

    step_hold, prbs_hold: transitions for which an action is repeated. chirp: frequencies at the
    start and at the end.
    """

    action_bound: float
    dt: float
    transitions: int
    step_hold: int
    prbs_hold: tuple[int, int]
    chirp: tuple[float, float]


class PolicyState(NamedTuple):
    """Holds the current action, the further transitions `left` for which it is repeated, and the
    phase of a chirp.
    """

    action: Float[Tensor, "env action"]
    left: Int64[Tensor, " env"]
    phase: Float[Tensor, "env action"]


def init_policy_state(envs: int, action_size: int, generator: torch.Generator) -> PolicyState:
    phase = torch.rand(envs, action_size, generator=generator, device=generator.device) * math.tau
    return PolicyState(
        action=torch.zeros_like(phase),
        left=torch.zeros_like(phase[:, 0], dtype=torch.int64),
        phase=phase,
    )


def act(
    arm: str,
    spec: PolicySpec,
    state: PolicyState,
    transition: int,
    generator: torch.Generator,
) -> PolicyState:
    """Computes the actions of all environments of an arm in a transition.

    Draws the same count of random numbers in each transition, whether actions are repeated or not.

    Raises:
        ValueError: the arm is unknown.
    """
    bound = spec.action_bound
    match arm:
        case "random":
            return state._replace(action=_uniform(state, bound, generator))
        case "step":
            return _hold(
                state,
                _uniform(state, bound, generator),
                torch.full_like(state.left, spec.step_hold),
            )
        case "prbs":
            return _hold_corners(spec, state, generator)
        case "chirp":
            return state._replace(
                action=bound * torch.sin(_chirp_angle(spec, transition) + state.phase)
            )
        case "off":
            return state._replace(action=torch.zeros_like(state.action))
    raise ValueError(f"arm {arm!r} is no policy; known: random, step, prbs, chirp, off")


def _hold_corners(spec: PolicySpec, state: PolicyState, generator: torch.Generator) -> PolicyState:
    bound = spec.action_bound
    negative = _uniform(state, bound, generator) < 0
    least, most = spec.prbs_hold
    return _hold(
        state,
        torch.where(negative, -bound, bound),
        torch.randint(
            least,
            most + 1,
            state.left.shape,
            generator=generator,
            device=generator.device,
        ),
    )


def _uniform(
    state: PolicyState,
    bound: float,
    generator: torch.Generator,
) -> Float[Tensor, "env action"]:
    uniform = torch.rand(state.action.shape, generator=generator, device=generator.device)
    return uniform * (2 * bound) - bound


def _hold(
    state: PolicyState,
    action: Float[Tensor, "env action"],
    duration: Int64[Tensor, " env"],
) -> PolicyState:
    """Replaces actions whose time is over by new ones of the given duration."""
    over = state.left == 0
    return state._replace(
        action=torch.where(over[:, None], action, state.action),
        left=torch.where(over, duration, state.left) - 1,
    )


def _chirp_angle(spec: PolicySpec, transition: int) -> float:
    """Returns the angle of a chirp in radians, modulo full turns to keep it exact in single
    precision.
    """
    start, end = spec.chirp
    time = transition * spec.dt
    turns = start * time + (end - start) * time**2 / (2 * (spec.transitions * spec.dt))
    return math.tau * (turns % 1)
