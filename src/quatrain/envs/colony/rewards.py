"""a step of colonies -> its reward: named components, which the rules weight.

Primed quantities are those after the step; Nc is the target size. Cells after the step are the
survivors and their children in the slots before the step, so that an overflow is rewarded in full.
"""

from collections.abc import Callable, Mapping
from functools import cache

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from quatrain.envs.colony.config import COMPONENTS, REASONS, RUNNING, SUCCESS, TIMEOUT
from quatrain.envs.colony.dynamics import Transition, World, in_use, intensity_at, select_leftmost
from quatrain.envs.colony.hull import hull_vertices

GOAL_TERMINAL = (0.0, 1.0, -1.0, -1.0, -0.5, 0.0, -1.0)
# Reward per reason.
RAW_TERMINAL = (0.0, 500.0, -15.0, -100.0, -50.0, 0.0, -100.0)
SCALE = 0.02
LARGEST_SCALED = 10.0
# Share of the width that a cell reaches for the first time in an episode, and its reward.
MILESTONES = ((0.25, 50.0), (0.5, 150.0), (0.75, 300.0), (0.9, 500.0))

# Components that read parents or ages of cells.
READ_LINEAGE = {"delete", "efficiency", "edge", "node"}

# Relative distance below the mean stiffness at which a cell counts as soft: equal ground differs by
# rounding.
EVEN = 1e-5

# Pairs of cells whose distances are computed at once.
PAIRS = 2**22

PerColony = Float[Tensor, " env"]


def components(world: World, step: Transition) -> Float[Tensor, "env component"]:
    """Computes the components of a step's reward, unweighted, in the order of their weights."""
    return torch.stack([_FUNCTIONS[name](world, step) for name, _ in world.rules.reward_weights], 1)


# Preset goal_control.


def progress(world: World, step: Transition) -> PerColony:
    """Computes (cx' − cx) / (W − 1)."""
    return _advance(step) / (world.rules.width - 1)


def growth(world: World, step: Transition) -> PerColony:
    """Computes −min(1, ((n' − Nc) / (Nc/2))²)."""
    target = world.rules.target_nodes
    return -(((step.after.n - target) / (0.5 * target)).square().clamp(max=1))


def metabolic(world: World, step: Transition) -> PerColony:
    """Computes −(γ/γ_max)² · survivors / (Nc/2)."""
    gamma = step.action[..., 1] / world.rules.bounds[1].high
    return -gamma.square() * (step.after.n / world.rules.target_nodes)


def lane(world: World, step: Transition) -> PerColony:
    """Computes −((cy' − H/2) / (H/2))²."""
    half = world.rules.height / 2
    return -((step.after.centroid[..., 1] - half) / half).square()


def time(world: World, step: Transition) -> PerColony:
    return torch.full_like(step.after.furthest, -1.0)


def terminal(world: World, step: Transition) -> PerColony:
    """Returns the reward of the reason why the episode ended."""
    return _by_reason(GOAL_TERMINAL, step)


def forfeit(world: World, step: Transition) -> PerColony:
    """Returns what `time` and `lane`, as they are weighted, would take in all steps that were left
    from a colony that stays where it is, where an episode ends without success before its time.
    Reads the weights of these two itself; 0 where the reward has neither.
    """
    weights = dict(world.rules.reward_weights)
    cost = weights.get("time", 0.0) * time(world, step)
    cost += weights.get("lane", 0.0) * lane(world, step)
    reason = step.reason
    premature = (reason != RUNNING) & (reason != SUCCESS) & (reason != TIMEOUT)
    return torch.where(premature, cost * (world.rules.max_steps - step.after.t), 0.0)


# The original's modes.


def distance(world: World, step: Transition) -> PerColony:
    """Computes 5 (cx' − cx) / (W − 1)."""
    return 5 * progress(world, step)


def first_step(world: World, step: Transition) -> PerColony:
    """Corrects `distance` in the first step, for which the original pays −(W − 1 − cx') /
    (W − 1).
    """
    last_pixel = world.rules.width - 1
    return torch.where(
        step.after.t == 1,
        -(last_pixel - step.after.centroid[..., 0]) / last_pixel - distance(world, step),
        0.0,
    )


def terminal_raw(world: World, step: Transition) -> PerColony:
    """Returns the reward of the reason why the episode ended, in the original's units."""
    return _by_reason(RAW_TERMINAL, step)


def terminal_scaled(world: World, step: Transition) -> PerColony:
    """Scales and clips `terminal_raw`."""
    return (SCALE * terminal_raw(world, step)).clamp(-LARGEST_SCALED, LARGEST_SCALED)


def growth_full(world: World, step: Transition) -> PerColony:
    """Returns −5 for fewer than 2 cells, −3 (1 + (n' − Nc)/Nc) for more than Nc, otherwise 0.1."""
    target = world.rules.target_nodes
    n = step.after.n
    return torch.where(n < 2, -5.0, torch.where(n > target, -3 * (1 + (n - target) / target), 0.1))


def action(world: World, step: Transition) -> PerColony:
    """Computes 0.01 n."""
    return 0.01 * step.before.n.float()


def centroid(world: World, step: Transition) -> PerColony:
    """Computes 5 (cx' − cx), in pixels."""
    return 5 * _advance(step)


def spawn(world: World, step: Transition) -> PerColony:
    """Sums over children: 2.5 if stiffer by delta_intensity than at the nearest cell before, else
    −1; less at edges.
    """
    before = step.before
    nearest_x = before.pos[..., 0].gather(1, _nearest(step.child, before.pos, in_use(before)))
    gain = intensity_at(world, step.child[..., 0], before.substrate)
    gain = gain - intensity_at(world, nearest_x, before.substrate)
    edge = _to_edge(world, step.child[..., 1])
    reward = torch.where(gain >= world.rules.delta_intensity, 2.5, -1.0)
    reward = reward + torch.where(edge < 0.08, -8.0, torch.where(edge < 0.15, -3.0, 0.0))
    return _sum_where(step.survives, reward)


def delete(world: World, step: Transition) -> PerColony:
    """Sums over cells before the step: 2 if marked and deleted, −2 if only one of the two."""
    marked = marks(world, step)
    return _sum_where(
        in_use(step.before),
        torch.where(marked & step.deleted, 2.0, torch.where(marked ^ step.deleted, -2.0, 0.0)),
    )


def efficiency(world: World, step: Transition) -> PerColony:
    """Sums over deleted cells: 0.05 max(0, age − 50) + 0.1 max(0, age − 20)."""
    age = step.before.age
    return _sum_where(step.deleted, 0.05 * (age - 50).clamp(min=0) + 0.1 * (age - 20).clamp(min=0))


def edge(world: World, step: Transition) -> PerColony:
    """Sums over edges: 0.5 if the child is right of its parent by more than 0.01 pixels, −0.05 if
    left by as much.
    """
    x = step.before.pos[..., 0]
    has_parent = step.survives & (step.ancestor >= 0)
    return _sum_where(
        has_parent, _edge_reward(x - x.gather(1, step.ancestor.clamp(min=0)))
    ) + _sum_where(step.survives, _edge_reward(step.child[..., 0] - x))


def node(world: World, step: Transition) -> PerColony:
    """Sums over cells: 0.3 I, hull, left border, upper and lower border, middle, and I compared
    with its mean.
    """
    rules = world.rules
    pos = torch.cat([step.before.pos, step.child], 1)  # survivors, then children
    exists = torch.cat([step.survives, step.survives], 1)
    age = torch.cat([step.before.age + 1, torch.zeros_like(step.before.age)], 1)
    x, y = pos.unbind(2)
    intensity = intensity_at(world, x, step.before.substrate)
    half = rules.height / 2
    to_edge = _to_edge(world, y)
    border = torch.where(to_edge < 0.08, -2.0, torch.where(to_edge < 0.15, -0.5, 0.0))
    border = torch.where(to_edge < 0.03, -5.0, border)
    mean = _sum_where(exists, intensity) / step.after.n.clamp(min=1)
    soft = intensity < (1 - EVEN) * mean[..., None]
    reward = 0.3 * intensity + 0.1 * hull_vertices(pos, exists) + border
    reward = reward - 0.2 * (x < 0.1 * rules.width) + 0.05 * ((y - half).abs() / half < 0.3)
    settled = torch.where(soft, -0.3, 1.5)
    return _sum_where(exists, reward + torch.where(age >= rules.delta_time, settled, 0.0))


def survival(world: World, step: Transition) -> PerColony:
    """Computes (0.01 + 0.02 [t ≥ 100]) (1 + min(1, t / (0.8 max_steps)))."""
    t = step.after.t
    return (0.01 + 0.02 * (t >= 100)) * (1 + (t / (0.8 * world.rules.max_steps)).clamp(max=1))


def milestone(world: World, step: Transition) -> PerColony:
    """Sums the rewards of the MILESTONES that the colony passes in this step."""
    reward = torch.zeros_like(step.after.furthest)
    for share, value in MILESTONES:
        x = share * world.rules.width
        reward = reward + value * ((step.before.furthest < x) & (step.after.furthest >= x))
    return reward


def marks(world: World, step: Transition) -> Bool[Tensor, "env cell"]:
    """Returns which cells should be deleted: if the colony is too large, the rightmost settled
    cells on soft ground.
    """
    before = step.before
    used = in_use(before)
    x = before.pos[..., 0]
    intensity = intensity_at(world, x, before.substrate)
    mean = _sum_where(used, intensity) / before.n.clamp(min=1)
    soft = intensity < (1 - EVEN) * mean[..., None]
    candidates = used & (before.age >= world.rules.delta_time) & soft
    excess = before.n - world.rules.target_nodes
    count = torch.where(excess > 0, (15 * excess // 100).clamp(min=1), 0)
    return select_leftmost(-x, candidates, count)


def _advance(step: Transition) -> PerColony:
    return step.after.centroid[..., 0] - step.before.centroid[..., 0]


def _by_reason(rewards: tuple[float, ...], step: Transition) -> PerColony:
    assert len(rewards) == len(REASONS)
    return _to_device(step.reason.device, rewards).take(step.reason)


@cache
def _to_device(device: torch.device, rewards: tuple[float, ...]) -> Float[Tensor, " reason"]:
    return torch.tensor(rewards, device=device)


def _sum_where(mask: Bool[Tensor, "env cell"], rewards: Float[Tensor, "env cell"]) -> PerColony:
    return torch.where(mask, rewards, 0.0).sum(1)


def _nearest(
    pos: Float[Tensor, "env child 2"],
    others: Float[Tensor, "env cell 2"],
    exist: Bool[Tensor, "env cell"],
) -> Int64[Tensor, "env child"]:
    """Returns the nearest existing other, ties by lower slot; in blocks of colonies, to bound the
    memory of pairs.
    """
    size = max(1, PAIRS // (pos.shape[1] * others.shape[1]))
    nearest = []
    blocks = zip(pos.split(size), others.split(size), exist.split(size), strict=True)
    for block, other, mask in blocks:
        nearest.append(
            torch.cdist(block, other, compute_mode="donot_use_mm_for_euclid_dist")
            .masked_fill_(~mask[:, None], torch.inf)
            .argmin(2)
        )
    return torch.cat(nearest)


def _to_edge(world: World, y: Tensor) -> Tensor:
    """Computes the distance to the upper or lower side, as a share of the height."""
    return torch.minimum(y, world.rules.height - y) / world.rules.height


def _edge_reward(dx: Tensor) -> Tensor:
    return torch.where(dx > 0.01, 0.5, torch.where(dx < -0.01, -0.05, 0.0))


# The function of each component has its name.
_FUNCTIONS: Mapping[str, Callable[[World, Transition], PerColony]] = {
    name: globals()[name] for name in COMPONENTS
}
