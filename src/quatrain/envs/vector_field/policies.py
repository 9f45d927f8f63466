"""random numbers -> actions that ignore the state: open-loop baselines of planning.

random  uniform in the box, drawn in each transition
step    one such draw, repeated for many transitions
prbs    a corner of the box, repeated for a random time: a pseudo-random binary sequence
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor


class PolicyState(NamedTuple):
    """Holds the current action, and the further transitions `left` for which it is repeated."""

    action: Float[Tensor, "env action"]
    left: Int64[Tensor, " env"]


def init_policy_state(envs: int, action_size: int, generator: Generator) -> PolicyState:
    """Returns the state before the first action; the generator skips one number per action."""
    action = torch.rand(envs, action_size, generator=generator, device=generator.device) * 0
    return PolicyState(action, torch.zeros_like(action[:, 0], dtype=torch.int64))


def act(
    arm: str, bound: float, hold: tuple[int, int], state: PolicyState, generator: Generator
) -> PolicyState:
    """Computes the next actions of all environments of an arm, in [-bound, bound].

    Draws the same count of random numbers in each transition, whether actions are repeated or not.
    hold: least and most transitions for which an action is repeated, but for arms that act at
    random; the active arm acts so where it cannot plan.
    """
    action = _uniform(state, bound, generator)
    if arm not in ("step", "prbs"):
        return state._replace(action=action)
    if arm == "step":
        return _hold(state, action, torch.full_like(state.left, hold[0]))
    shape, device = state.left.shape, generator.device
    duration = torch.randint(hold[0], hold[1] + 1, shape, generator=generator, device=device)
    return _hold(state, torch.where(action < 0, -bound, bound), duration)


def _uniform(state: PolicyState, bound: float, generator: Generator) -> Float[Tensor, "env action"]:
    uniform = torch.rand(state.action.shape, generator=generator, device=generator.device)
    return uniform * (2 * bound) - bound


def _hold(
    state: PolicyState, action: Float[Tensor, "env action"], duration: Int64[Tensor, " env"]
) -> PolicyState:
    """Replaces actions whose time is over by new ones of the given duration."""
    over = state.left == 0
    return PolicyState(
        action=torch.where(over[:, None], action, state.action),
        left=torch.where(over, duration, state.left) - 1,
    )
