"""An iteration of the original's training: it acts for some steps, sums up advantages, and learns
from what it met.

Parts that the proposal changes are given: how the leftmost cells are found, the reward is put
together, advantages are summed up. The entropy was in closed form already.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.reference import actor_critic_parts as parts
from benchmarks.reference.actor_critic import (
    Acting,
    Coefficients,
    Graph,
    Sample,
    graph_of,
    policy,
    update,
)
from benchmarks.reference.actor_critic_parts import Episode, Estimate
from benchmarks.reference.colony_rewards import GOAL_WEIGHTS, goal_control


class Ways(NamedTuple):
    """Holds the implementations of what the proposal changes."""

    leftmost: Callable[[Tensor, int], set[int]]
    reward: Callable[[dict[str, float]], dict[str, float]]
    advantages: Callable[[Episode, float, float], Estimate]


TEMPLATE = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)
BEFORE = Ways(
    parts.leftmost_before, lambda paid: parts.reward_before(paid, GOAL_WEIGHTS), parts.gae_before
)
SEED = Ways(
    parts.leftmost_seed,
    lambda paid: parts.reward_seed(TEMPLATE, paid, GOAL_WEIGHTS),
    parts.gae_seed,
)


class Iteration(NamedTuple):
    """Holds the sizes of an iteration."""

    steps: int
    epochs: int
    discount: float
    gae_lambda: float
    coefs: Coefficients


class StepRecord(NamedTuple):
    """Holds one step."""

    graph: Graph
    z: Tensor
    log_prob: Tensor
    value: Tensor
    reward: float


def iterate(
    acting: Acting, optimiser: torch.optim.Optimizer, ways: Ways, asked: Iteration
) -> list[float]:
    """Runs one iteration within one episode; returns the loss of each epoch."""
    transitions = [act(acting, ways, asked.coefs.log_volume) for _ in range(asked.steps)]
    values = torch.stack([each.value for each in transitions])
    with torch.no_grad():
        last = acting.network(graph_of(acting.colony, acting.scale))[1]
    rewards, next_values = (
        torch.tensor([each.reward for each in transitions]),
        torch.cat([values[1:], last[None]]),
    )
    result = ways.advantages(
        Episode(rewards, values, next_values), asked.discount, asked.gae_lambda
    )
    advantages = (result.advantages - result.advantages.mean()) / (
        result.advantages.std(correction=0) + 1e-8
    )
    columns = zip(transitions, advantages, result.returns, strict=True)
    batch = [
        Sample(each.graph, each.z, each.log_prob, advantage, returns)
        for each, advantage, returns in columns
    ]
    return [update(acting.network, optimiser, batch, asked.coefs) for _ in range(asked.epochs)]


@torch.no_grad()
def act(acting: Acting, ways: Ways, log_volume: float) -> StepRecord:
    """Takes one step; the policy also marks the cells to delete, which the environment determines
    itself.
    """
    graph = graph_of(acting.colony, acting.scale)
    raw, value = acting.network(graph)
    for _ in range(acting.passes - 1):
        acting.network(graph)
    distribution = policy(raw)
    z = distribution.sample().clamp(1e-5, 1 - 1e-5)
    action = acting.box.action(z)
    ways.leftmost(graph.node, int(action[0] * len(graph.node)))
    paid = ways.reward(goal_control(acting.colony.step(action)))
    return StepRecord(graph, z, distribution.log_prob(z).sum() - log_volume, value, paid["total"])
