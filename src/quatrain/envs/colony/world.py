"""plates, random numbers -> colonies; actions -> the next colonies; a policy -> whole episodes"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor

from quatrain.envs.colony.config import PARAMETERS, RUNNING, START_WIDTH, TIMEOUT, Env
from quatrain.envs.colony.dynamics import Colonies, Transition, World, advance, without_lineage
from quatrain.envs.colony.rewards import READ_LINEAGE, components

# Positions of colonies in the initial batch, and their states -> their actions.
ColonyPolicy = Callable[[Int64[Tensor, " env"], Colonies], Float[Tensor, "env 5"]]


class StepResult(NamedTuple):
    """Holds a step of all colonies.

    colonies: after the step, where ended episodes are reset. final: the same before resets.
    components: of the reward, in the order of `rules.reward_weights`. reward: their weighted sum.
    terminated and truncated never both hold.
    """

    colonies: Colonies
    final: Colonies
    components: Float[Tensor, "env component"]
    reward: Float[Tensor, " env"]
    terminated: Bool[Tensor, " env"]
    truncated: Bool[Tensor, " env"]
    reason: Int64[Tensor, " env"]


def start(world: World, count: int, generator: Generator) -> Colonies:
    """Draws colonies at the left side: chains of cells from left to right, each on a random plate
    of the world.
    """
    rules = world.rules

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    plates = torch.randint(len(world.intensity), (count,), generator=generator)
    n = torch.randint(rules.n0_min, rules.n0_max + 1, (count,), generator=generator)
    used = torch.arange(rules.max_nodes) < n[:, None]
    x = uniform(count, rules.max_nodes) * START_WIDTH * rules.width
    low, high = rules.y_center
    middle = (low + (high - low) * uniform(count, 1)) * rules.height
    y = middle + (2 * uniform(count, rules.max_nodes) - 1) * rules.y_spread * rules.height
    x = torch.where(used, x, torch.inf).sort(1).values
    return colonies_at(torch.where(used[..., None], torch.stack([x, y], 2), 0.0), n, plates)


def colonies_at(
    pos: Float[Tensor, "env cell 2"], n: Int64[Tensor, " env"], substrate: Int64[Tensor, " env"]
) -> Colonies:
    """Returns colonies before their first step with `n` cells at `pos` (0 elsewhere), each the
    parent of the next.
    """
    slot = torch.arange(pos.shape[1], device=pos.device).expand(pos.shape[:2])
    used = slot < n[:, None]
    zero = torch.zeros_like(n)
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
    world: World, colonies: Colonies, action: Float[Tensor, "env 5"], generator: Generator
) -> StepResult:
    """Computes one step of all colonies and resets those whose episode ended.

    Raises:
        ValueError: an action is outside its bounds, if `rules.check_actions` is set.
    """
    if world.rules.check_actions:
        check_actions(world.rules, action)
    transition = advance(world, colonies, action)
    rewards = components(world, transition)
    reason = transition.reason
    ended = reason != RUNNING
    truncated = reason == TIMEOUT
    return StepResult(
        colonies=restart(world, transition.after, ended, generator),
        final=transition.after,
        components=rewards,
        reward=rewards @ world.weights,
        terminated=ended ^ truncated,
        truncated=truncated,
        reason=reason,
    )


def restart(
    world: World, colonies: Colonies, ended: Bool[Tensor, " env"], generator: Generator
) -> Colonies:
    """Replaces the colonies that ended by new ones. Draws only as many on a CPU; on other devices
    all, because counting would synchronise.
    """
    if not ended.is_cpu:
        drawn = start(world, len(ended), generator)
        return Colonies(
            *(
                torch.where(ended.view(-1, *[1] * (leaf.dim() - 1)), new, leaf)
                for leaf, new in zip(colonies, drawn, strict=True)
            )
        )
    indices = ended.nonzero()[..., 0]
    if not len(indices):
        return colonies
    drawn = start(world, len(indices), generator)
    return Colonies(
        *(leaf.index_copy(0, indices, new) for leaf, new in zip(colonies, drawn, strict=True))
    )


def check_actions(rules: Env, action: Float[Tensor, "..."]) -> None:
    """Raises ValueError unless actions are rows of PARAMETERS within their bounds, inclusive."""
    expected = [*action.shape[:1], len(PARAMETERS)]
    if list(action.shape) != expected:
        raise ValueError(
            f"action has shape {_brackets(action.shape)}, expected {_brackets(expected)}"
        )
    low, high = action.new_tensor(rules.bounds).unbind(1)
    valid = (action >= low) & (action <= high)
    if not valid.all():
        raise ValueError(_fault(rules, action, valid))


def _fault(rules: Env, action: Tensor, valid: Tensor) -> str:
    if action.isnan().any():
        return f"action contains nan in row {int(action.isnan().any(1).nonzero()[0])}"
    row, parameter = (~valid).nonzero()[0].tolist()
    # float32 in its shortest form prints 17.2 instead of 17.200000762939453.
    value, low, high = map(np.float32, (action[row, parameter].item(), *rules.bounds[parameter]))
    return f"action[{row}].{PARAMETERS[parameter]} = {value!s} outside [{low!s}, {high!s}]"


def _brackets(sizes: Sequence[int]) -> str:
    return f"[{','.join(map(str, sizes))}]"


# Episodes.


class EpisodeStep(NamedTuple):
    """Holds a step of the colonies that still run.

    indices: their positions in the initial batch. components: unweighted. reward: their weighted
    sum.
    """

    indices: Int64[Tensor, " env"]
    transition: Transition
    components: Float[Tensor, "env component"]
    reward: Float[Tensor, " env"]


def episodes(world: World, colonies: Colonies, act: ColonyPolicy) -> Iterator[EpisodeStep]:
    """Yields the steps of one episode of each colony; at most `max_steps`."""
    indices = torch.arange(len(colonies.n), device=colonies.n.device)
    while len(indices):
        transition = advance(world, colonies, act(indices, colonies))
        rewards = components(world, transition)
        yield EpisodeStep(indices, transition, rewards, rewards @ world.weights)
        colonies = transition.after
        running = (transition.reason == RUNNING).nonzero()[:, 0]
        if len(running) < len(indices):
            indices = indices[running]
            colonies = select(colonies, running)


def select(colonies: Colonies, indices: Int64[Tensor, " selected"]) -> Colonies:
    return Colonies(*(leaf[indices] for leaf in colonies))


def repeat(colonies: Colonies, times: int) -> Colonies:
    """Concatenates `times` copies of the batch."""
    return Colonies(*(leaf.repeat(times, *[1] * (leaf.dim() - 1)) for leaf in colonies))


def returns(world: World, colonies: Colonies, act: ColonyPolicy) -> Float[Tensor, " env"]:
    """Computes the undiscounted return of one episode of each colony, of whose cells the policy
    sees only where they are.
    """
    if not READ_LINEAGE & dict(world.rules.reward_weights).keys():
        colonies = without_lineage(colonies)
    total = torch.zeros(len(colonies.n), dtype=torch.float64)
    for step in episodes(world, colonies, act):
        total.index_add_(0, step.indices, step.reward.double())
    return total.float()
