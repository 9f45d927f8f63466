"""colonies, a policy -> one episode of each colony, step by step, without those that ended."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, Transition, World, advance
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.rules import RUNNING


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
        running = (transition.reason == RUNNING).nonzero()[:, 0]
        indices = indices[running]
        colonies = select(transition.after, running)


def select(colonies: Colonies, indices: Int64[Tensor, " selected"]) -> Colonies:
    return Colonies(*(leaf[indices] for leaf in colonies))


def repeat(colonies: Colonies, times: int) -> Colonies:
    """Concatenates `times` copies of the batch."""
    return Colonies(*(leaf.repeat(times, *[1] * (leaf.dim() - 1)) for leaf in colonies))


def returns(world: World, colonies: Colonies, act: ColonyPolicy) -> Float[Tensor, " env"]:
    """Computes the undiscounted return of one episode of each colony."""
    total = torch.zeros(len(colonies.n), dtype=torch.float64)
    for step in episodes(world, colonies, act):
        total.index_add_(0, step.indices, step.reward.double())
    return total.float()
