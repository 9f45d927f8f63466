"""An iteration of the original's training: it acts, sums up advantages, and learns.

Parts that the proposal changes are arguments; the entropy was in closed form already.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from benchmarks.reference import actor_critic_parts as parts
from benchmarks.reference.actor_critic import Coefficients, Player, Sample, graph_of, update
from benchmarks.reference.actor_critic_parts import Episode, Loop
from benchmarks.reference.colony import Colony
from benchmarks.reference.colony_rewards import GOAL_WEIGHTS, goal_control


class Ways(NamedTuple):
    """Holds the implementations of what the proposal changes."""

    leftmost: Callable[[Tensor, int], set[int]]
    reward: Callable[[dict[str, float]], dict[str, float]]
    advantages: Loop


TEMPLATE = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)
BEFORE = Ways(
    parts.leftmost_before, partial(parts.reward_before, weights=GOAL_WEIGHTS), parts.gae_before
)
SEED = Ways(
    parts.leftmost_seed, partial(parts.reward_seed, TEMPLATE, weights=GOAL_WEIGHTS), parts.gae_seed
)


class Iteration(NamedTuple):
    """Holds the sizes of an iteration."""

    steps: int
    epochs: int
    discount: float
    gae_lambda: float
    coefs: Coefficients


def iterate(
    player: Player, colony: Colony, optimiser: Optimizer, ways: Ways, asked: Iteration
) -> list[float]:
    """Runs one iteration within one episode; returns the loss of each epoch."""
    decisions, rewards = [], []
    for _ in range(asked.steps):
        decision = player.decide(colony)
        decisions.append(decision)
        action = player.box.action(decision.z)
        # The policy also marks the cells to delete, which the environment determines itself.
        ways.leftmost(decision.graph.node, int(action[0] * len(decision.graph.node)))
        rewards.append(ways.reward(goal_control(colony.step(action)))["total"])
    values = torch.stack([decision.value for decision in decisions])
    with torch.no_grad():
        last = player.network(graph_of(colony, player.scale))[1]
    episode = Episode(torch.tensor(rewards), values, torch.cat([values[1:], last[None]]))
    advantages, returns = ways.advantages(episode, asked.discount, asked.gae_lambda)
    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    batch = [
        Sample(decision.graph, decision.z, decision.log_prob, advantage, target)
        for decision, advantage, target in zip(decisions, advantages, returns, strict=True)
    ]
    return [update(player.network, optimiser, batch, asked.coefs) for _ in range(asked.epochs)]
