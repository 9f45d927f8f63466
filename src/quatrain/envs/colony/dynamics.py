"""colonies, actions -> the colonies one step later: all of a batch at once, in padded tensors.

A colony is a forest: each cell knows the slot of its parent. Slots 0..n-1 are in use and sorted by persistent id, so
that "stable by slot" is "stable by persistent id"; padding holds 0, -1 and False.
"""

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Complex64, Float, Int64
from torch import Tensor

from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.rules import (
    EXTINCT,
    LEFT_DRIFT,
    OVERFLOW,
    RUNNING,
    SUCCESS,
    TIMEOUT,
    Rules,
    goal,
    margins,
)

ROUNDING = 1e-4
"""Cells; float32 has 0.7 * 10 just below 7."""
TOLERANCE = 1e-3
"""Pixels; the spawn law clamps cells at the goal itself."""


class World(NamedTuple):
    """What all colonies of a batch share: the rules, the stiffness of each plate along x, and what components weigh."""

    rules: Rules
    intensity: Float[Tensor, "plate width"]
    weights: Float[Tensor, " component"]


class Colonies(NamedTuple):
    """The state of a batch of colonies.

    pos: x and y, in pixels; a cell never moves. parent: slot of the parent, -1 of a root. pid: persistent id. age:
    steps since birth. new: born in the last step. n: cells; more than there are slots after an overflow. t: steps
    taken. left: moves of the centroid to the left in a row. furthest: the largest x that any cell of the episode had.
    substrate: row of the plates.
    """

    pos: Float[Tensor, "colony cell 2"]
    parent: Int64[Tensor, "colony cell"]
    pid: Int64[Tensor, "colony cell"]
    age: Float[Tensor, "colony cell"]
    new: Bool[Tensor, "colony cell"]
    n: Int64[Tensor, " colony"]
    t: Int64[Tensor, " colony"]
    left: Int64[Tensor, " colony"]
    next_pid: Int64[Tensor, " colony"]
    centroid: Float[Tensor, "colony 2"]
    furthest: Float[Tensor, " colony"]
    substrate: Int64[Tensor, " colony"]


CELLS = ("pos", "parent", "pid", "age", "new")
"""Fields of colonies that have an axis of slots."""


class Transition(NamedTuple):
    """A step, as rewards see it. `before` and `after` share no slots; the other cells stand in slots of `before`,
    which has no more of them than its largest colony needs.

    after: with its true n, its cells cropped to the slots. deleted: cells that were removed. survives: cells that
    were not, each of which has a `child`. ancestor: the slot of a cell's nearest surviving ancestor, or -1.
    """

    before: Colonies
    after: Colonies
    action: Float[Tensor, "colony 5"]
    deleted: Bool[Tensor, "colony cell"]
    survives: Bool[Tensor, "colony cell"]
    child: Float[Tensor, "colony cell 2"]
    ancestor: Int64[Tensor, "colony cell"]
    reason: Int64[Tensor, " colony"]


def make_world(rules: Rules, plates: Plates) -> World:
    """On torch's default device."""
    return World(
        rules, torch.tensor(plates.intensity), torch.tensor([weight for _, weight in rules.reward])
    )


def in_use(colonies: Colonies) -> Bool[Tensor, "colony cell"]:
    """Which slots hold a cell."""
    return slot_indices(colonies.parent.shape[1], colonies.n.device) < colonies.n[..., None]


@cache
def slot_indices(count: int, device: torch.device) -> Int64[Tensor, " place"]:
    """0, 1, 2, ... for reading only: a step of few colonies costs what its operations cost to call."""
    return torch.arange(count, device=device)


def intensity_at(
    world: World, x: Float[Tensor, "colony *cell"], substrate: Int64[Tensor, " colony"]
) -> Float[Tensor, "colony *cell"]:
    """Stiffness at the pixel that x lies in."""
    width = world.intensity.shape[1]
    pixel = x.clamp(0, width - 1).long()
    return world.intensity.take(pixel + width * substrate.view(-1, *[1] * (x.dim() - 1)))


def advance(world: World, colonies: Colonies, action: Float[Tensor, "colony 5"]) -> Transition:
    """One step: delete the leftmost cells, let every other one spawn a child, adopt orphans, close ranks."""
    slots = colonies.parent.shape[1]
    colonies = narrowed(colonies)
    used = in_use(colonies)
    count = (action[..., 0] * colonies.n + ROUNDING).long().clamp(min=0).minimum(colonies.n)
    deleted = select_leftmost(colonies.pos[..., 0], used, count)
    survives = used ^ deleted
    here, child = as_complex(colonies.pos), _children(world, colonies, action)
    ancestor = _surviving_ancestors(colonies.parent, deleted)
    after = _compacted(colonies, survives, torch.cat([here, child], 1), ancestor, slots)
    after = _moved(colonies, after, survives, here, child)
    reason = _reason(world.rules, after)
    return Transition(
        colonies, after, action, deleted, survives, torch.view_as_real(child), ancestor, reason
    )


def as_complex(pos: Float[Tensor, "colony cell 2"]) -> Complex64[Tensor, "colony cell"]:
    """x + iy: what moves a complex number moves both at once, and on a CPU several times as fast as pairs."""
    return torch.view_as_complex(pos.contiguous())


def narrowed(colonies: Colonies) -> Colonies:
    """On a CPU without the slots that no colony uses; elsewhere to know them would wait for the device."""
    if not colonies.n.is_cpu:
        return colonies
    width = max(int(colonies.n.max()), 1)
    return Colonies(
        *(leaf[:, :width] if name in CELLS else leaf for name, leaf in colonies._asdict().items())
    )


def select_leftmost(
    x: Float[Tensor, "colony cell"],
    candidates: Bool[Tensor, "colony cell"],
    count: Int64[Tensor, " colony"],
) -> Bool[Tensor, "colony cell"]:
    """The `count` candidates of smallest x, of equal ones those in lower slots; all where there are fewer."""
    order = torch.where(candidates, x, torch.inf).sort(dim=1, stable=True).indices
    chosen = slot_indices(x.shape[1], x.device) < count[..., None]
    return torch.empty_like(chosen).scatter_(1, order, chosen).logical_and_(candidates)


def hill_length(
    gamma: Tensor, alpha: Tensor, noise: Tensor, intensity: Float[Tensor, "colony cell"]
) -> Float[Tensor, "colony cell"]:
    """h = γ / (1 + (α/I)²) + ν, in pixels."""
    return gamma[..., None] / (1 + (alpha[..., None] / intensity).square()) + noise[..., None]


def _children(world: World, colonies: Colonies, action: Tensor) -> Complex64[Tensor, "colony cell"]:
    _, gamma, alpha, noise, theta = action.unbind(1)
    x, y = colonies.pos.unbind(2)
    length = hill_length(gamma, alpha, noise, intensity_at(world, x, colonies.substrate))
    side, above = margins(world.rules)
    child_x = (length * theta.cos()[..., None]).add_(x).clamp_(side, world.rules.width - side)
    child_y = (length * theta.sin()[..., None]).add_(y).clamp_(above, world.rules.height - above)
    return torch.complex(child_x, child_y)


def _surviving_ancestors(
    parent: Int64[Tensor, "colony cell"], deleted: Bool[Tensor, "colony cell"]
) -> Int64[Tensor, "colony cell"]:
    """Pointer jumping: log2(cells) rounds reach over any chain of deleted cells.

    While it lasts, cells are numbered from 1, and 0 is above all roots: from a deleted cell the way leads on to its
    parent, from any other one nowhere else.
    """
    colonies, cells = parent.shape
    above, number = parent + 1, slot_indices(cells + 1, parent.device)
    onward = torch.cat([number[:1].expand(colonies, 1), torch.where(deleted, above, number[1:])], 1)
    for _ in range(max(1, (cells - 1).bit_length())):
        farther = onward.gather(1, onward)
        if parent.is_cpu and torch.equal(
            farther, onward
        ):  # elsewhere the question would wait for the device
            break
        onward = farther
    return onward.gather(1, above).sub_(1)


def _compacted(
    before: Colonies,
    survives: Tensor,
    both: Complex64[Tensor, "colony cells"],
    ancestor: Tensor,
    slots: int,
) -> Colonies:
    """Survivors in their order, then their children in theirs, in the slots that there are.

    both: where cells are, then where their children are. Cells, children and, at the end, nothing stand in one row;
    `source` says which of them comes into a slot.
    """
    colonies, width = survives.shape
    count = survives.cumsum(1)
    survivors, rank, next_pid = count[..., -1], count - 1, before.next_pid[..., None]
    room = max(slots, 2 * width)
    place = rank.masked_fill(~survives, room)  # behind all slots where a cell is gone
    place = torch.cat([place, place + survivors[..., None]], 1)
    source = place.new_full((colonies, room + width + 1), 2 * width)
    source.scatter_(1, place, slot_indices(2 * width, place.device).expand_as(place))
    source = source[:, :slots]
    nothing = place.new_full((colonies, 1), -1)
    heir = torch.cat([nothing, rank], 1).gather(1, ancestor + 1)
    pid = torch.cat([before.pid, rank + next_pid, nothing], 1).gather(1, source)
    return before._replace(
        pos=torch.view_as_real(torch.cat([both, both.new_zeros(colonies, 1)], 1).gather(1, source)),
        parent=torch.cat([heir, rank, nothing], 1).gather(1, source),
        pid=pid,
        age=torch.cat([before.age + 1, before.age.new_zeros(colonies, width + 1)], 1).gather(
            1, source
        ),
        new=pid >= next_pid,
        n=2 * survivors,
        next_pid=before.next_pid + survivors,
    )


def _moved(
    before: Colonies, after: Colonies, survives: Tensor, here: Tensor, child: Tensor
) -> Colonies:
    """Time, and where the colony is now; one without cells stays where it was."""
    gone = ~survives
    grown = torch.view_as_real((here + child).masked_fill_(gone, 0.0)).sum(1)
    n = after.n[..., None]
    centroid = torch.where(n > 0, grown / n.clamp(min=1), before.centroid)
    backwards = centroid[..., 0] < before.centroid[..., 0]
    rightmost = torch.maximum(here.real, child.real).masked_fill_(gone, 0.0).amax(1)
    return after._replace(
        t=before.t + 1,
        left=(before.left + 1).masked_fill_(~backwards, 0),
        centroid=centroid,
        furthest=torch.maximum(before.furthest, rightmost),
    )


def _reason(rules: Rules, after: Colonies) -> Int64[Tensor, " colony"]:
    """Why an episode ends with this step; of several reasons the last in this order."""
    reason = torch.full_like(after.n, RUNNING)
    for code, holds in (
        (TIMEOUT, after.t >= rules.max_steps),
        (SUCCESS, after.furthest >= goal(rules) - TOLERANCE),
        (LEFT_DRIFT, after.left >= rules.left_limit),
        (EXTINCT, after.n == 0),
        (OVERFLOW, after.n > rules.max_nodes),
    ):
        reason.masked_fill_(holds, code)
    return reason
