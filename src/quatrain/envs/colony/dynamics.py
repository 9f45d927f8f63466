"""colonies, actions -> the colonies one step later: all of a batch at once, in padded tensors.

A colony is a forest: each cell knows the slot of its parent. Slots 0..n-1 are in use and sorted by persistent id, so
that "stable by slot" is "stable by persistent id"; padding holds 0, -1 and False.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.rules import EXTINCT, LEFT_DRIFT, OVERFLOW, RUNNING, SUCCESS, TIMEOUT, Rules, goal, margins

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
    return World(rules, torch.tensor(plates.intensity), torch.tensor([weight for _, weight in rules.reward]))


def in_use(colonies: Colonies) -> Bool[Tensor, "colony cell"]:
    """Which slots hold a cell."""
    return torch.arange(colonies.parent.shape[1], device=colonies.n.device) < colonies.n[:, None]


def intensity_at(
    world: World, x: Float[Tensor, "colony *cell"], substrate: Int64[Tensor, " colony"]
) -> Float[Tensor, "colony *cell"]:
    """Stiffness at the pixel that x lies in."""
    width = world.intensity.shape[1]
    pixel = x.clamp(0, width - 1).long()
    return world.intensity.flatten()[pixel + width * substrate.view(-1, *[1] * (x.dim() - 1))]


def advance(world: World, colonies: Colonies, action: Float[Tensor, "colony 5"]) -> Transition:
    """One step: delete the leftmost cells, let every other one spawn a child, adopt orphans, close ranks."""
    ratio, gamma, alpha, noise, theta = action.unbind(1)
    slots = colonies.parent.shape[1]
    colonies = narrowed(colonies)
    used = in_use(colonies)
    count = (ratio * colonies.n + ROUNDING).long().clamp(min=0).minimum(colonies.n)
    deleted = select_leftmost(colonies.pos[..., 0], used, count)
    survives = used & ~deleted
    child = _children(world, colonies, gamma, alpha, noise, theta)
    ancestor = _surviving_ancestors(colonies.parent, deleted)
    after = _compacted(colonies, survives, child, ancestor, slots)
    after = _moved(colonies, after, survives, child)
    reason = _reason(world.rules, after)
    return Transition(colonies, after, action, deleted, survives, child, ancestor, reason)


def narrowed(colonies: Colonies) -> Colonies:
    """On a CPU without the slots that no colony uses; elsewhere to know them would wait for the device."""
    if not colonies.n.is_cpu:
        return colonies
    width = max(int(colonies.n.max()), 1)
    return Colonies(*(leaf[:, :width] if name in CELLS else leaf for name, leaf in colonies._asdict().items()))


def select_leftmost(
    x: Float[Tensor, "colony cell"], candidates: Bool[Tensor, "colony cell"], count: Int64[Tensor, " colony"]
) -> Bool[Tensor, "colony cell"]:
    """The `count` candidates of smallest x, of equal ones those in lower slots; all where there are fewer."""
    order = torch.where(candidates, x, torch.inf).sort(dim=1, stable=True).indices
    places = torch.arange(x.shape[1], device=x.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(1, order, places)
    return (rank < count[:, None]) & candidates


def hill_length(
    gamma: Tensor, alpha: Tensor, noise: Tensor, intensity: Float[Tensor, "colony cell"]
) -> Float[Tensor, "colony cell"]:
    """h = γ / (1 + (α/I)²) + ν, in pixels."""
    return gamma[:, None] / (1 + (alpha[:, None] / intensity).square()) + noise[:, None]


def _children(
    world: World, colonies: Colonies, gamma: Tensor, alpha: Tensor, noise: Tensor, theta: Tensor
) -> Float[Tensor, "colony cell 2"]:
    x, y = colonies.pos.unbind(2)
    length = hill_length(gamma, alpha, noise, intensity_at(world, x, colonies.substrate))
    side, above = margins(world.rules)
    child_x = (x + length * theta.cos()[:, None]).clamp(side, world.rules.width - side)
    child_y = (y + length * theta.sin()[:, None]).clamp(above, world.rules.height - above)
    return torch.stack([child_x, child_y], 2)


def _surviving_ancestors(
    parent: Int64[Tensor, "colony cell"], deleted: Bool[Tensor, "colony cell"]
) -> Int64[Tensor, "colony cell"]:
    """Pointer jumping: log2(cells) rounds reach over any chain of deleted cells."""
    ancestor = parent
    for _ in range(max(1, (parent.shape[1] - 1).bit_length())):
        slot = ancestor.clamp(min=0)
        orphaned = deleted.gather(1, slot) & (ancestor >= 0)
        if ancestor.is_cpu and not orphaned.any():  # elsewhere the question would wait for the device
            break
        ancestor = torch.where(orphaned, ancestor.gather(1, slot), ancestor)
    return ancestor


def _compacted(before: Colonies, survives: Tensor, child: Tensor, ancestor: Tensor, slots: int) -> Colonies:
    """Survivors in their order, then their children in theirs, in the slots that there are."""
    colonies, width = survives.shape
    rank = survives.cumsum(1) - 1
    survivors = rank[:, -1:] + 1
    place = torch.arange(slots, device=survives.device).expand(colonies, slots)
    bins = torch.where(survives, rank, width)
    survivor_at = survivors.new_zeros(colonies, width + 1).scatter_(1, bins, place[:, :width])[:, :-1]
    born = (place >= survivors) & (place < 2 * survivors)
    used = place < 2 * survivors
    sibling = torch.where(born, place - survivors, place)
    source = survivor_at.gather(1, sibling.clamp(max=width - 1))
    both = torch.cat([before.pos, child], 1)
    pos = both.gather(1, (source + width * born)[..., None].expand(-1, -1, 2))
    heir = ancestor.gather(1, source)
    parent = torch.where(heir >= 0, rank.gather(1, heir.clamp(min=0)), heir)
    return before._replace(
        pos=torch.where(used[..., None], pos, 0.0),
        parent=torch.where(used, torch.where(born, sibling, parent), -1),
        pid=torch.where(used, torch.where(born, before.next_pid[:, None] + sibling, before.pid.gather(1, source)), -1),
        age=torch.where(used & ~born, before.age.gather(1, source) + 1, 0.0),
        new=born,
        n=2 * survivors[:, 0],
        next_pid=before.next_pid + survivors[:, 0],
    )


def _moved(before: Colonies, after: Colonies, survives: Tensor, child: Tensor) -> Colonies:
    """Time, and where the colony is now; one without cells stays where it was."""
    grown = torch.where(survives[..., None], before.pos + child, 0.0).sum(1)
    centroid = torch.where(after.n[:, None] > 0, grown / after.n.clamp(min=1)[:, None], before.centroid)
    backwards = centroid[:, 0] < before.centroid[:, 0]
    rightmost = torch.where(survives, torch.maximum(before.pos[..., 0], child[..., 0]), 0.0).amax(1)
    return after._replace(
        t=before.t + 1,
        left=torch.where(backwards, before.left + 1, 0),
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
        reason = torch.where(holds, code, reason)
    return reason
