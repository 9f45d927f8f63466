"""a step of colonies -> what it pays: components, each under a name, which the rules weigh.

Primed quantities are those after the step; Nc is the size to hold. Cells after the step are the survivors and their
children, which stand in slots of the colony before it, so that an overflow is paid for in full.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from quatrain.envs.colony.dynamics import Transition, World, in_use, intensity_at, select_leftmost
from quatrain.envs.colony.hull import hull_vertices
from quatrain.envs.colony.rules import COMPONENTS, REASONS

GOAL_TERMINAL = (0.0, 1.0, -1.0, -1.0, -0.5, 0.0, -1.0)
RAW_TERMINAL = (0.0, 500.0, -15.0, -100.0, -50.0, 0.0, -100.0)
"""Per reason."""
SCALE, LARGEST_SCALED = 0.02, 10.0
MILESTONES = ((0.25, 50.0), (0.5, 150.0), (0.75, 300.0), (0.9, 500.0))
"""Share of the width that a cell reached for the first time in an episode, and what that pays."""

EVEN = 1e-5
"""Share by which stiffness must lie below its mean to count as soft: cells on equal ground differ by rounding."""

PAIRS = 2**22
"""Of cells, whose distances are computed at once."""

PerColony = Float[Tensor, " colony"]


class Grown(NamedTuple):
    """The cells after a step, unordered: survivors, then children."""

    pos: Float[Tensor, "colony cells 2"]
    exists: Bool[Tensor, "colony cells"]
    age: Float[Tensor, "colony cells"]
    intensity: Float[Tensor, "colony cells"]


def components(world: World, step: Transition) -> Float[Tensor, "colony component"]:
    """What a step pays, in the order of `rules.reward`."""
    return torch.stack([_FUNCTIONS[name](world, step) for name, _ in world.rules.reward], 1)


# Preset goal_control.


def progress(world: World, step: Transition) -> PerColony:
    """(cx' − cx) / (W − 1)."""
    return _advance(step) / (world.rules.width - 1)


def growth(world: World, step: Transition) -> PerColony:
    """−min(1, ((n' − Nc) / (Nc/2))²)."""
    target = world.rules.target_nodes
    return -(((step.after.n - target) / (0.5 * target)).square().clamp(max=1))


def metabolic(world: World, step: Transition) -> PerColony:
    """−(γ/γ_max)² · survivors / (Nc/2)."""
    largest = world.rules.bounds[1].high
    return -(step.action[..., 1] / largest).square() * (step.after.n / world.rules.target_nodes)


def lane(world: World, step: Transition) -> PerColony:
    """−((cy' − H/2) / (H/2))²."""
    half = world.rules.height / 2
    return -((step.after.centroid[..., 1] - half) / half).square()


def time(world: World, step: Transition) -> PerColony:
    """−1."""
    return torch.full_like(step.after.furthest, -1.0)


def terminal(world: World, step: Transition) -> PerColony:
    """Of the reason why the episode ended."""
    return _by_reason(GOAL_TERMINAL, step)


# The original's modes.


def distance(world: World, step: Transition) -> PerColony:
    """5 (cx' − cx) / (W − 1)."""
    return 5 * progress(world, step)


def first_step(world: World, step: Transition) -> PerColony:
    """What the original pays for the first step in place of `distance`, −(W − 1 − cx') / (W − 1): their difference."""
    reach = world.rules.width - 1
    instead = -(reach - step.after.centroid[..., 0]) / reach
    return torch.where(step.after.t == 1, instead - distance(world, step), 0.0)


def terminal_raw(world: World, step: Transition) -> PerColony:
    """Of the reason why the episode ended, in the original's units."""
    return _by_reason(RAW_TERMINAL, step)


def terminal_scaled(world: World, step: Transition) -> PerColony:
    """The same, scaled and clipped."""
    return (SCALE * terminal_raw(world, step)).clamp(-LARGEST_SCALED, LARGEST_SCALED)


def growth_full(world: World, step: Transition) -> PerColony:
    """−5 of fewer than 2 cells, −3 (1 + (n' − Nc)/Nc) of more than Nc, otherwise 0.1."""
    target, n = world.rules.target_nodes, step.after.n
    large = torch.where(n > target, -3 * (1 + (n - target) / target), 0.1)
    return torch.where(n < 2, -5.0, large)


def growth_penalty(world: World, step: Transition) -> PerColony:
    """The negative part of `growth_full`."""
    return growth_full(world, step).clamp(max=0)


def action(world: World, step: Transition) -> PerColony:
    """0.01 n."""
    return 0.01 * step.before.n.float()


def centroid(world: World, step: Transition) -> PerColony:
    """5 (cx' − cx), in pixels."""
    return 5 * _advance(step)


def spawn(world: World, step: Transition) -> PerColony:
    """Per child: 2.5 where it is stiffer by delta_intensity than the nearest cell before, else −1; less at the edge."""
    before, substrate = step.before, step.before.substrate
    nearest = _nearest(step.child, before.pos, in_use(before))
    gain = intensity_at(world, step.child[..., 0], substrate) - intensity_at(
        world, before.pos[..., 0].gather(1, nearest), substrate
    )
    edge = _to_edge(world, step.child[..., 1])
    paid = torch.where(gain >= world.rules.delta_intensity, 2.5, -1.0)
    paid = paid + torch.where(edge < 0.08, -8.0, torch.where(edge < 0.15, -3.0, 0.0))
    return _over(step.survives, paid)


def delete(world: World, step: Transition) -> PerColony:
    """Per cell before: 2 of a marked one that is gone, −2 of one marked or gone."""
    marked = marks(world, step)
    paid = torch.where(marked & step.deleted, 2.0, torch.where(marked ^ step.deleted, -2.0, 0.0))
    return _over(in_use(step.before), paid)


def delete_penalty(world: World, step: Transition) -> PerColony:
    """The negative part of `delete`."""
    return delete(world, step).clamp(max=0)


def efficiency(world: World, step: Transition) -> PerColony:
    """Per deleted cell: 0.05 max(0, age − 50) + 0.1 max(0, age − 20)."""
    age = step.before.age
    return _over(step.deleted, 0.05 * (age - 50).clamp(min=0) + 0.1 * (age - 20).clamp(min=0))


def edge(world: World, step: Transition) -> PerColony:
    """Per edge from parent to child: 0.5 where it leads to the right, −0.05 to the left, by more than 0.01 pixels."""
    x = step.before.pos[..., 0]
    adopted = x - x.gather(1, step.ancestor.clamp(min=0))
    has_parent = step.survives & (step.ancestor >= 0)
    return _over(has_parent, _edge_pay(adopted)) + _over(
        step.survives, _edge_pay(step.child[..., 0] - x)
    )


def node(world: World, step: Transition) -> PerColony:
    """Per cell: 0.3 I, the hull, the left border, the upper and lower border, the middle, and I against its mean."""
    rules, cells = world.rules, grown(world, step)
    x, y = cells.pos.unbind(2)
    to_edge, half = _to_edge(world, y), rules.height / 2
    zone = torch.where(
        to_edge < 0.03,
        -5.0,
        torch.where(to_edge < 0.08, -2.0, torch.where(to_edge < 0.15, -0.5, 0.0)),
    )
    mean = _over(cells.exists, cells.intensity) / step.after.n.clamp(min=1)
    settled = torch.where(cells.intensity < (1 - EVEN) * mean[..., None], -0.3, 1.5)
    paid = 0.3 * cells.intensity + 0.1 * hull_vertices(cells.pos, cells.exists) + zone
    paid = paid - 0.2 * (x < 0.1 * rules.width) + 0.05 * ((y - half).abs() / half < 0.3)
    return _over(cells.exists, paid + torch.where(cells.age >= rules.delta_time, settled, 0.0))


def survival(world: World, step: Transition) -> PerColony:
    """(0.01 + 0.02 [t ≥ 100]) (1 + min(1, t / (0.8 max_steps)))."""
    t = step.after.t
    return (0.01 + 0.02 * (t >= 100)) * (1 + (t / (0.8 * world.rules.max_steps)).clamp(max=1))


def milestone(world: World, step: Transition) -> PerColony:
    """Of each MILESTONE that the colony passes with this step."""
    paid = torch.zeros_like(step.after.furthest)
    for share, value in MILESTONES:
        at = share * world.rules.width
        paid = paid + value * ((step.before.furthest < at) & (step.after.furthest >= at))
    return paid


def marks(world: World, step: Transition) -> Bool[Tensor, "colony cell"]:
    """Cells that should go: of a colony above its size, the rightmost of those that settled where it is soft."""
    before, rules = step.before, world.rules
    used = in_use(before)
    intensity = intensity_at(world, before.pos[..., 0], before.substrate)
    mean = _over(used, intensity) / before.n.clamp(min=1)
    candidates = (
        used & (before.age >= rules.delta_time) & (intensity < (1 - EVEN) * mean[..., None])
    )
    excess = before.n - rules.target_nodes
    count = torch.where(excess > 0, (15 * excess // 100).clamp(min=1), 0)
    return select_leftmost(-before.pos[..., 0], candidates, count)


def grown(world: World, step: Transition) -> Grown:
    """The cells after a step."""
    before = step.before
    pos = torch.cat([before.pos, step.child], 1)
    return Grown(
        pos=pos,
        exists=torch.cat([step.survives, step.survives], 1),
        age=torch.cat([before.age + 1, torch.zeros_like(before.age)], 1),
        intensity=intensity_at(world, pos[..., 0], before.substrate),
    )


def _advance(step: Transition) -> PerColony:
    return step.after.centroid[..., 0] - step.before.centroid[..., 0]


def _by_reason(paid: tuple[float, ...], step: Transition) -> PerColony:
    assert len(paid) == len(REASONS)
    return _on(step.reason.device, paid).take(step.reason)


@cache
def _on(device: torch.device, paid: tuple[float, ...]) -> Float[Tensor, " reason"]:
    return torch.tensor(paid, device=device)


def _over(chosen: Bool[Tensor, "colony cells"], paid: Float[Tensor, "colony cells"]) -> PerColony:
    return torch.where(chosen, paid, 0.0).sum(1)


def _nearest(
    pos: Float[Tensor, "colony child 2"],
    others: Float[Tensor, "colony cell 2"],
    exist: Bool[Tensor, "colony cell"],
) -> Int64[Tensor, "colony child"]:
    """The nearest of the others that exist, of equal ones the first; some colonies at a time, as pairs take memory."""
    rows = max(1, PAIRS // (pos.shape[1] * others.shape[1]))
    found = []
    for one, other, mask in zip(
        pos.split(rows), others.split(rows), exist.split(rows), strict=True
    ):
        apart = torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
        found.append(apart.masked_fill_(~mask[:, None], torch.inf).argmin(2))
    return torch.cat(found)


def _to_edge(world: World, y: Tensor) -> Tensor:
    """Distance to the upper or lower side, as a share of the height."""
    return torch.minimum(y, world.rules.height - y) / world.rules.height


def _edge_pay(dx: Tensor) -> Tensor:
    return torch.where(dx > 0.01, 0.5, torch.where(dx < -0.01, -0.05, 0.0))


_FUNCTIONS: Mapping[str, Callable[[World, Transition], PerColony]] = {
    function.__name__: function
    for function in (
        *(progress, growth, metabolic, lane, time, terminal),
        *(distance, first_step, terminal_scaled, growth_penalty, delete_penalty),
        *(
            growth_full,
            action,
            centroid,
            spawn,
            delete,
            efficiency,
            edge,
            node,
            survival,
            milestone,
            terminal_raw,
        ),
    )
}
assert tuple(_FUNCTIONS) == COMPONENTS
