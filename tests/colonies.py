"""Default rules of colonies, plates of each kind, and colonies built by hand or by steps."""

from typing import Any

import numpy as np
import torch

from quatrain.envs.colony import plates
from quatrain.envs.colony.config import Env
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.world import start, step
from tests.conftest import params_with

DEFAULT = params_with({}).actor_critic.env


def rules(**changes: Any) -> Env:
    """Returns the default rules with changes, unchecked. bounds: of some numbers of an action."""
    bounds = DEFAULT.action.bounds.model_copy(update=changes.pop("bounds", {}))
    action = DEFAULT.action.model_copy(update={"bounds": bounds})
    return DEFAULT.model_copy(update={"action": action} | changes)


def flat_plate() -> Plates:
    """Returns a plate of stiffness 1."""
    return plates.make_plates(np.array([plates.LINEAR]), np.zeros(1), np.ones(1), DEFAULT.width)


def all_kinds(width: int = 600) -> Plates:
    """Returns a linear, an exponential and a measured plate, in this order."""
    formulas = plates.make_plates(
        np.array([plates.LINEAR, plates.EXPONENTIAL]),
        np.array([0.05, 0.006]),
        np.array([1.0, 0.7]),
        width,
    )
    measured = plates.user_plate((2 + np.sin(np.arange(width) / 50)).astype(np.float32))
    return Plates(*(np.concatenate(both) for both in zip(formulas, measured, strict=True)))


def world(some_plates: Plates | None = None, **changes: Any) -> World:
    """Returns a world with changed rules, by default on a plate of each kind."""
    changed = rules(**changes)
    return make_world(changed, all_kinds(changed.width) if some_plates is None else some_plates)


def colonies_of(
    some_rules: Env, *cells: list[tuple[float, float]], parents: list[int] | None = None
) -> Colonies:
    """Returns colonies with these cells before their first step; by default each cell is the parent
    of the next.
    """
    count, slots = len(cells), max(some_rules.max_nodes, *map(len, cells))
    pos, n = torch.zeros(count, slots, 2), torch.tensor([len(of_one) for of_one in cells])
    parent = torch.full((count, slots), -1)
    for row, of_one in enumerate(cells):
        pos[row, : len(of_one)] = torch.tensor(of_one, dtype=torch.float32).reshape(-1, 2)
        parent[row, : len(of_one)] = torch.tensor(parents or range(-1, len(of_one) - 1))
    used, zero = torch.arange(slots) < n[:, None], torch.zeros(count, dtype=torch.long)
    return Colonies(
        pos=pos,
        parent=parent,
        pid=torch.where(used, torch.arange(slots), -1),
        age=torch.zeros(count, slots),
        new=torch.zeros(count, slots, dtype=torch.bool),
        n=n,
        t=zero,
        left=zero,
        next_pid=n,
        centroid=pos.sum(1) / n.clamp(min=1)[:, None],
        furthest=pos[..., 0].amax(1),
        substrate=zero,
    )


def actions(some_rules: Env, count: int, generator: torch.Generator) -> torch.Tensor:
    """Draws actions uniformly within the bounds."""
    low, high = torch.tensor(some_rules.bounds).unbind(1)
    return low + (high - low) * torch.rand(count, len(low), generator=generator)


def steered(colonies: Colonies, some_rules: Env, generator: torch.Generator) -> torch.Tensor:
    """Draws actions that keep colonies near their target size, for long episodes."""
    action = actions(some_rules, len(colonies.n), generator)
    low, high = some_rules.bounds[0]
    n = colonies.n.float()
    action[:, 0] = ((n - some_rules.target_nodes / 2 + 0.5) / n).clamp(low, high) * (
        0.8 + 0.2 * action[:, 0] / high
    )
    return action


def wandering(some_world: World, count: int, steps: int, seed: int = 0) -> Colonies:
    """Returns colonies after some steps, with ended episodes reset."""
    generator = torch.Generator().manual_seed(seed)
    colonies = start(some_world, count, generator)
    for _ in range(steps):
        colonies = step(
            some_world, colonies, steered(colonies, some_world.rules, generator), generator
        ).colonies
    return colonies
