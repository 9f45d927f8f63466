"""colonies, a policy -> one episode of each, step by step, without those that ended."""

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
    """A step of the colonies that still live.

    rows: their numbers within the batch that began. components: what the step paid, reward: in sum.
    """

    indices: Int64[Tensor, " colony"]
    transition: Transition
    components: Float[Tensor, "colony component"]
    reward: Float[Tensor, " colony"]


def episodes(world: World, colonies: Colonies, act: ColonyPolicy) -> Iterator[EpisodeStep]:
    """Each colony until its episode ends; at most `max_steps` moments."""
    indices = torch.arange(len(colonies.n), device=colonies.n.device)
    while len(indices):
        transition = advance(world, colonies, act(indices, colonies))
        paid = components(world, transition)
        yield EpisodeStep(indices, transition, paid, paid @ world.weights)
        living = (transition.reason == RUNNING).nonzero()[:, 0]
        indices, colonies = indices[living], select(transition.after, living)


def select(colonies: Colonies, indices: Int64[Tensor, " chosen"]) -> Colonies:
    """Some of the colonies."""
    return Colonies(*(leaf[indices] for leaf in colonies))


def repeat(colonies: Colonies, times: int) -> Colonies:
    """The whole batch so many times, one after the other."""
    return Colonies(*(leaf.repeat(times, *[1] * (leaf.dim() - 1)) for leaf in colonies))


def returns(world: World, colonies: Colonies, act: ColonyPolicy) -> Float[Tensor, " colony"]:
    """Undiscounted return of one episode of each colony."""
    total = torch.zeros(len(colonies.n), dtype=torch.float64)
    for moment in episodes(world, colonies, act):
        total.index_add_(0, moment.indices, moment.reward.double())
    return total.float()
