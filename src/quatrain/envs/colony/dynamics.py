"""colonies, actions -> the colonies one step later: all of a batch at once, in padded tensors.

A colony is a forest: each cell stores the slot of its parent. Slots 0..n-1 are in use and sorted by
persistent id, so that "stable by slot" means "stable by persistent id". Padding holds 0, -1 and
False.
"""

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Complex64, Float, Int64
from torch import Tensor

from quatrain.envs.colony.config import (
    EXTINCT,
    LEFT_DRIFT,
    OVERFLOW,
    RUNNING,
    SUCCESS,
    TIMEOUT,
    Env,
)
from quatrain.envs.colony.plates import Plates

# Cells that are added before rounding down: in float32, 0.7 * 10 is just below 7.
ROUNDING = 1e-4
# Pixels by which the goal may be missed: the spawn rule clamps cells at the goal itself.
TOLERANCE = 1e-3


class World(NamedTuple):
    """Holds what all colonies of a batch share: rules, stiffness of each plate along x, weights of
    components.
    """

    rules: Env
    intensity: Float[Tensor, "plate width"]
    weights: Float[Tensor, " component"]


class Colonies(NamedTuple):
    """Holds the state of a batch of colonies.

    pos: x and y in pixels; a cell never moves. parent: slot of the parent, -1 for a root. pid:
    persistent id. age: steps since birth. new: whether it was born in the last step. n: number of
    cells; larger than the number of slots after an overflow. t: steps of the episode. left:
    consecutive moves of the centroid to the left. furthest: largest x of any cell in the episode.
    substrate: index of the plate. Colonies `without_lineage` have no slots but those of `pos`.
    """

    pos: Float[Tensor, "env cell 2"]
    parent: Int64[Tensor, "env cell"]
    pid: Int64[Tensor, "env cell"]
    age: Float[Tensor, "env cell"]
    new: Bool[Tensor, "env cell"]
    n: Int64[Tensor, " env"]
    t: Int64[Tensor, " env"]
    left: Int64[Tensor, " env"]
    next_pid: Int64[Tensor, " env"]
    centroid: Float[Tensor, "env 2"]
    furthest: Float[Tensor, " env"]
    substrate: Int64[Tensor, " env"]


# Fields of colonies that have an axis of slots.
LINEAGE = ("parent", "pid", "age", "new")
CELLS = ("pos", *LINEAGE)


class Transition(NamedTuple):
    """Holds a step, as rewards need it. Slots of `before` and of `after` do not correspond.

    The other cell axes are slots of `before`, which is cropped to the largest colony on a CPU.
    after: with its true n, its cells cropped to the slots. deleted: cells that were removed.
    survives: cells that were not removed; each of them has a `child`. ancestor: slot of the nearest
    surviving ancestor of a cell, or -1.
    """

    before: Colonies
    after: Colonies
    action: Float[Tensor, "env 5"]
    deleted: Bool[Tensor, "env cell"]
    survives: Bool[Tensor, "env cell"]
    child: Float[Tensor, "env cell 2"]
    ancestor: Int64[Tensor, "env cell"]
    reason: Int64[Tensor, " env"]


def make_world(rules: Env, plates: Plates) -> World:
    """Builds the world on torch's default device."""
    return World(
        rules=rules,
        intensity=torch.tensor(plates.intensity),
        weights=torch.tensor([weight for _, weight in rules.reward_weights]),
    )


def in_use(colonies: Colonies) -> Bool[Tensor, "env cell"]:
    return slot_indices(colonies.pos.shape[1], colonies.n.device) < colonies.n[..., None]


def without_lineage(colonies: Colonies) -> Colonies:
    """Forgets whose child each cell is, and when it was born, which is half the work of a step."""
    return colonies._replace(**dict.fromkeys(LINEAGE, colonies.parent[:, :0]))


def has_lineage(colonies: Colonies) -> bool:
    return colonies.parent.shape[1] > 0


@cache
def slot_indices(count: int, device: torch.device) -> Int64[Tensor, " slot"]:
    """Returns 0, 1, 2, ..., cached and read-only, because a step of few colonies is bound by calls
    of operations.
    """
    return torch.arange(count, device=device)


def intensity_at(
    world: World, x: Float[Tensor, "env *cell"], substrate: Int64[Tensor, " env"]
) -> Float[Tensor, "env *cell"]:
    """Returns the stiffness at the pixel that contains x."""
    width = world.intensity.shape[1]
    return world.intensity.take(
        x.clamp(0, width - 1).long() + width * substrate.view(-1, *[1] * (x.dim() - 1))
    )


def advance(world: World, colonies: Colonies, action: Float[Tensor, "env 5"]) -> Transition:
    """Computes one step: delete the leftmost cells, spawn a child of each other cell, re-parent
    orphans, compact.
    """
    slots = colonies.pos.shape[1]
    colonies = drop_unused_slots(colonies)
    used = in_use(colonies)
    count = (action[..., 0] * colonies.n + ROUNDING).long().clamp(min=0).minimum(colonies.n)
    deleted = select_leftmost(colonies.pos[..., 0], used, count)
    survives = used ^ deleted
    # x + iy, because on a CPU complex numbers are gathered several times faster than pairs.
    position = torch.view_as_complex(colonies.pos.contiguous())
    child = _children(world, colonies, action)
    ancestor = colonies.parent
    if has_lineage(colonies):
        ancestor = _surviving_ancestors(ancestor, deleted)
    after = _compact(colonies, survives, position, child, ancestor, slots)
    after = _update_progress(colonies, after, survives, position, child)
    return Transition(
        before=colonies,
        after=after,
        action=action,
        deleted=deleted,
        survives=survives,
        child=torch.view_as_real(child),
        ancestor=ancestor,
        reason=_reason(world.rules, after),
    )


def drop_unused_slots(colonies: Colonies) -> Colonies:
    """Crops the slots that no colony uses on a CPU; on other devices their number would need a
    synchronisation.
    """
    if not colonies.n.is_cpu:
        return colonies
    width = max(int(colonies.n.max()), 1)
    return colonies._replace(**{name: getattr(colonies, name)[:, :width] for name in CELLS})


def select_leftmost(
    x: Float[Tensor, "env cell"], candidates: Bool[Tensor, "env cell"], count: Int64[Tensor, " env"]
) -> Bool[Tensor, "env cell"]:
    """Selects the `count` candidates of smallest x, ties by lower slot; all candidates if there are
    fewer.
    """
    order = torch.where(candidates, x, torch.inf).sort(dim=1, stable=True).indices
    selected = slot_indices(x.shape[1], x.device) < count[..., None]
    return torch.empty_like(selected).scatter_(1, order, selected).logical_and_(candidates)


def hill_length(
    gamma: Tensor, alpha: Tensor, noise: Tensor, intensity: Float[Tensor, "env cell"]
) -> Float[Tensor, "env cell"]:
    """Computes the distance of a child from its parent, h = γ / (1 + (α/I)²) + ν, in pixels."""
    return gamma[..., None] / (1 + (alpha[..., None] / intensity).square()) + noise[..., None]


def _children(world: World, colonies: Colonies, action: Tensor) -> Complex64[Tensor, "env cell"]:
    _, gamma, alpha, noise, theta = action.unbind(1)
    x, y = colonies.pos.unbind(2)
    length = hill_length(gamma, alpha, noise, intensity_at(world, x, colonies.substrate))
    side, above = world.rules.margins
    return torch.complex(
        (length * theta.cos()[..., None]).add_(x).clamp_(side, world.rules.width - side),
        (length * theta.sin()[..., None]).add_(y).clamp_(above, world.rules.height - above),
    )


def _surviving_ancestors(
    parent: Int64[Tensor, "env cell"], deleted: Bool[Tensor, "env cell"]
) -> Int64[Tensor, "env cell"]:
    """Follows chains of deleted cells by pointer jumping, in log2(cells) rounds.

    Cells are numbered from 1 here; 0 is the parent of all roots. The pointer of a deleted cell
    leads to its parent, the pointer of any other cell to itself.
    """
    colonies, cells = parent.shape
    above = parent + 1
    number = slot_indices(cells + 1, parent.device)
    onward = torch.where(deleted, above, number[1:])
    onward = torch.cat([number[:1].expand(colonies, 1), onward], 1)
    for _ in range(max(1, (cells - 1).bit_length())):
        farther = onward.gather(1, onward)
        # On other devices than a CPU the comparison would wait for the device.
        if parent.is_cpu and torch.equal(farther, onward):
            break
        onward = farther
    return onward.gather(1, above).sub_(1)


def _compact(
    colonies: Colonies,
    survives: Bool[Tensor, "env cell"],
    position: Complex64[Tensor, "env cell"],
    child: Complex64[Tensor, "env cell"],
    ancestor: Int64[Tensor, "env _"],
    slots: int,
) -> Colonies:
    """Puts survivors, then their children, into the lowest slots, each group in its order."""
    count, width = survives.shape
    births = survives.cumsum(1)
    rank = births - 1
    survivors = births[..., -1]
    source = _source_slots(survives, rank, survivors, slots)

    def compact(*parts: Tensor) -> Tensor:
        return torch.cat(parts, 1).gather(1, source)

    pos = torch.view_as_real(compact(position, child, position.new_zeros(count, 1)))
    after = colonies._replace(pos=pos, n=2 * survivors, next_pid=colonies.next_pid + survivors)
    if not has_lineage(colonies):
        return after
    next_pid = colonies.next_pid[..., None]
    none = rank.new_full((count, 1), -1)
    pid = compact(colonies.pid, rank + next_pid, none)
    return after._replace(
        parent=compact(torch.cat([none, rank], 1).gather(1, ancestor + 1), rank, none),
        pid=pid,
        age=compact(colonies.age + 1, colonies.age.new_zeros(count, width + 1)),
        new=pid >= next_pid,
    )


def _source_slots(
    survives: Bool[Tensor, "env cell"],
    rank: Int64[Tensor, "env cell"],
    survivors: Int64[Tensor, " env"],
    slots: int,
) -> Int64[Tensor, "env slot"]:
    """Returns which of [cells, children, padding] moves into each slot."""
    colonies, width = survives.shape
    behind = max(slots, 2 * width)
    target = rank.masked_fill(~survives, behind)
    target = torch.cat([target, target + survivors[..., None]], 1)
    source = target.new_full((colonies, behind + width + 1), 2 * width)
    source.scatter_(1, target, slot_indices(2 * width, target.device).expand_as(target))
    return source[:, :slots]


def _update_progress(
    before: Colonies,
    after: Colonies,
    survives: Bool[Tensor, "env cell"],
    position: Complex64[Tensor, "env cell"],
    child: Complex64[Tensor, "env cell"],
) -> Colonies:
    """Updates t, left, centroid and furthest; a colony without cells keeps its centroid."""
    deleted = ~survives
    n = after.n[..., None]
    centroid = torch.where(
        n > 0,
        torch.view_as_real((position + child).masked_fill_(deleted, 0.0)).sum(1) / n.clamp(min=1),
        before.centroid,
    )
    return after._replace(
        t=before.t + 1,
        left=(before.left + 1).masked_fill_(~(centroid[..., 0] < before.centroid[..., 0]), 0),
        centroid=centroid,
        furthest=torch.maximum(
            before.furthest,
            torch.maximum(position.real, child.real).masked_fill_(deleted, 0.0).amax(1),
        ),
    )


def _reason(rules: Env, after: Colonies) -> Int64[Tensor, " env"]:
    """Returns why an episode ends with this step; if several reasons hold, the last in this
    order.
    """
    reason = torch.full_like(after.n, RUNNING)
    for code, holds in (
        (TIMEOUT, after.t >= rules.max_steps),
        (SUCCESS, after.furthest >= rules.goal - TOLERANCE),
        (LEFT_DRIFT, after.left >= rules.left_limit),
        (EXTINCT, after.n == 0),
        (OVERFLOW, after.n > rules.max_nodes),
    ):
        reason.masked_fill_(holds, code)
    return reason
