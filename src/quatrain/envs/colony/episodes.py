"""colonies, a policy -> one episode of each, step by step, without those that ended."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, Transition, World, advance
from quatrain.envs.colony.policies import Act
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.rules import RUNNING


class Moment(NamedTuple):
    """A step of the colonies that still live.

    rows: their numbers within the batch that began. components: what the step paid, reward: in sum.
    """

    rows: Int64[Tensor, " colony"]
    transition: Transition
    components: Float[Tensor, "colony component"]
    reward: Float[Tensor, " colony"]


def episodes(world: World, colonies: Colonies, act: Act) -> Iterator[Moment]:
    """Each colony until its episode ends; at most `max_steps` moments."""
    rows = torch.arange(len(colonies.n), device=colonies.n.device)
    while len(rows):
        transition = advance(world, colonies, act(rows, colonies))
        paid = components(world, transition)
        yield Moment(rows, transition, paid, paid @ world.weights)
        living = (transition.reason == RUNNING).nonzero()[:, 0]
        rows, colonies = rows[living], taken(transition.after, living)


def taken(colonies: Colonies, rows: Int64[Tensor, " chosen"]) -> Colonies:
    """Some of the colonies."""
    return Colonies(*(leaf[rows] for leaf in colonies))


def repeated(colonies: Colonies, times: int) -> Colonies:
    """The whole batch so many times, one after the other."""
    return Colonies(*(leaf.repeat(times, *[1] * (leaf.dim() - 1)) for leaf in colonies))


def returns(world: World, colonies: Colonies, act: Act) -> Float[Tensor, " colony"]:
    """Undiscounted return of one episode of each colony."""
    total = torch.zeros(len(colonies.n), dtype=torch.float64)
    for moment in episodes(world, colonies, act):
        total.index_add_(0, moment.rows, moment.reward.double())
    return total.float()
