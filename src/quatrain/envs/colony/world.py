"""plates, random numbers -> colonies; actions -> the next ones, where each that ended begins anew."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor

from quatrain.envs.colony.actions import check_actions
from quatrain.envs.colony.dynamics import Colonies, World, advance
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.rules import RUNNING, START_WIDTH, TIMEOUT


class StepResult(NamedTuple):
    """A step of all colonies.

    colonies: those that ended have begun anew. last: as they were before that. components: what the step paid, in the
    order of `rules.reward`, and reward: their weighted sum. Of terminated and truncated at most one holds.
    """

    colonies: Colonies
    final: Colonies
    components: Float[Tensor, "colony component"]
    reward: Float[Tensor, " colony"]
    terminated: Bool[Tensor, " colony"]
    truncated: Bool[Tensor, " colony"]
    reason: Int64[Tensor, " colony"]


def start(world: World, count: int, generator: Generator) -> Colonies:
    """Colonies at the left side: chains of cells from left to right, each on a plate drawn from those of the world."""
    rules, slots = world.rules, world.rules.max_nodes
    draw = lambda *shape: torch.rand(*shape, generator=generator)  # noqa: E731
    plates = torch.randint(len(world.intensity), (count,), generator=generator)
    n = torch.randint(rules.n0_min, rules.n0_max + 1, (count,), generator=generator)
    used = torch.arange(slots) < n[:, None]
    x = draw(count, slots) * START_WIDTH * rules.width
    low, high = rules.y_center
    middle = (low + (high - low) * draw(count, 1)) * rules.height
    y = middle + (2 * draw(count, slots) - 1) * rules.y_spread * rules.height
    x = torch.where(used, x, torch.inf).sort(1).values
    return colonies_at(torch.where(used[..., None], torch.stack([x, y], 2), 0.0), n, plates)


def colonies_at(
    pos: Float[Tensor, "colony cell 2"],
    n: Int64[Tensor, " colony"],
    substrate: Int64[Tensor, " colony"],
) -> Colonies:
    """Colonies before their first step, with `n` cells at `pos` (zeros elsewhere), each the parent of the next."""
    slot = torch.arange(pos.shape[1], device=pos.device).expand(pos.shape[:2])
    used, zero = slot < n[:, None], torch.zeros_like(n)
    return Colonies(
        pos=pos,
        parent=torch.where(used, slot - 1, -1),
        pid=torch.where(used, slot, -1),
        age=torch.zeros_like(pos[..., 0]),
        new=torch.zeros_like(used),
        n=n,
        t=zero,
        left=zero,
        next_pid=n,
        centroid=pos.sum(1) / n.clamp(min=1)[:, None],
        furthest=pos[..., 0].amax(1),
        substrate=substrate,
    )


def step(
    world: World, colonies: Colonies, action: Float[Tensor, "colony 5"], generator: Generator
) -> StepResult:
    """One step of all colonies; the action is the caller's and acts as it is.

    Raises:
        ValueError: an action is outside its bounds, where the rules say that this is checked.
    """
    if world.rules.check_actions:
        check_actions(world.rules, action)
    transition = advance(world, colonies, action)
    paid = components(world, transition)
    reason = transition.reason
    over, truncated = reason != RUNNING, reason == TIMEOUT
    return StepResult(
        colonies=_begun_anew(world, transition.after, over, generator),
        final=transition.after,
        components=paid,
        reward=paid @ world.weights,
        terminated=over ^ truncated,
        truncated=truncated,
        reason=reason,
    )


def _begun_anew(
    world: World, colonies: Colonies, over: Bool[Tensor, " colony"], generator: Generator
) -> Colonies:
    """On a CPU only as many as ended are drawn; elsewhere all, for to count them would wait for the device."""
    if not over.is_cpu:
        fresh = start(world, len(over), generator)
        chosen = [over.view(-1, *[1] * (leaf.dim() - 1)) for leaf in colonies]
        return Colonies(*map(torch.where, chosen, fresh, colonies))
    rows = over.nonzero()[..., 0]
    if not len(rows):
        return colonies
    fresh = start(world, len(rows), generator)
    return Colonies(
        *(leaf.index_copy(0, rows, new) for leaf, new in zip(colonies, fresh, strict=True))
    )
