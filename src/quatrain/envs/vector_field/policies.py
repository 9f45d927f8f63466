"""time and chance -> actions that do not look at the state: the rivals of planning.

random  uniform in the box, anew in each transition
step    one such draw, held long
prbs    a corner of the box, held for a random while: a pseudo-random binary sequence, all signs drawn together
chirp   bound · sin(2π (f0 t + (f1 - f0) t² / 2T) + phase), at time t of T
off     none
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class PolicySpec(NamedTuple):
    """What the policies depend on. chirp: frequencies at the start and at the end of `transitions` of dt."""

    action_bound: float
    dt: float
    transitions: int
    step_hold: int
    prbs_hold: tuple[int, int]
    chirp: tuple[float, float]


class PolicyState(NamedTuple):
    """action: to take now. left: further transitions for which it stays. phase: of a chirp, by dimension."""

    action: Float[Tensor, "row action"]
    left: Int64[Tensor, " row"]
    phase: Float[Tensor, "row action"]


def init_policy_state(rows: int, action_size: int, generator: torch.Generator) -> PolicyState:
    """Before the first transition."""
    phase = torch.rand(rows, action_size, generator=generator, device=generator.device) * math.tau
    return PolicyState(
        torch.zeros_like(phase), torch.zeros_like(phase[:, 0], dtype=torch.int64), phase
    )


def act(
    arm: str, spec: PolicySpec, held: PolicyState, transition: int, generator: torch.Generator
) -> PolicyState:
    """The actions of all rows of an arm in a transition. As much is drawn in each, whatever is held."""
    bound = spec.action_bound
    match arm:
        case "random":
            return held._replace(action=_uniform(held, bound, generator))
        case "step":
            stays = torch.full_like(held.left, spec.step_hold)
            return _held_on(held, _uniform(held, bound, generator), stays)
        case "prbs":
            least, most = spec.prbs_hold
            corner = torch.where(_uniform(held, bound, generator) < 0, -bound, bound)
            stays = torch.randint(
                least, most + 1, held.left.shape, generator=generator, device=generator.device
            )
            return _held_on(held, corner, stays)
        case "chirp":
            turned = _turned(spec.chirp, transition * spec.dt, spec.transitions * spec.dt)
            return held._replace(action=bound * torch.sin(turned + held.phase))
        case "off":
            return held._replace(action=torch.zeros_like(held.action))
    raise ValueError(f"arm {arm!r} is no policy; known: random, step, prbs, chirp, off")


def _uniform(
    held: PolicyState, bound: float, generator: torch.Generator
) -> Float[Tensor, "row action"]:
    drawn = torch.rand(held.action.shape, generator=generator, device=generator.device)
    return drawn * (2 * bound) - bound


def _held_on(
    held: PolicyState, fresh: Float[Tensor, "row action"], stays: Int64[Tensor, " row"]
) -> PolicyState:
    """What is fresh where the time is over, and stays so long."""
    over = held.left == 0
    left = torch.where(over, stays, held.left)
    return held._replace(action=torch.where(over[:, None], fresh, held.action), left=left - 1)


def _turned(frequencies: tuple[float, float], time: float, whole: float) -> float:
    """Radians that a chirp has turned, less whole turns: single precision would forget the rest."""
    start, end = frequencies
    return math.tau * ((start * time + (end - start) * time**2 / (2 * whole)) % 1)
