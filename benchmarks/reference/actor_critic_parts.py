"""Parts of the original's learner as they were (`before`) and as proposed (`seed`); an iteration of
its training: it acts, sums up advantages, and learns.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Beta, Normal
from torch.optim import Optimizer

from benchmarks.reference.actor_critic import Coefficients, Player, Sample, graph_of, update
from benchmarks.reference.colony import GOAL_WEIGHTS, Colony, goal_control


class Episode(NamedTuple):
    """Steps of one episode. next_values: of the state after each step, 0 where it ended."""

    rewards: Tensor
    values: Tensor
    next_values: Tensor


class Estimate(NamedTuple):
    """Holds advantage and return of each step."""

    advantages: Tensor
    returns: Tensor


Loop = Callable[[Episode, float, float], Estimate]


# Selection: row i of `node` is a cell, its first column x.


def leftmost_before(node: Tensor, count: int) -> set[int]:
    """Sorts a list of pairs by x; cells are read one by one."""
    positions = [(index, node[index][0].item()) for index in range(len(node))]
    positions.sort(key=lambda pair: pair[1])
    return {index for index, _ in positions[:count]}


def leftmost_seed(node: Tensor, count: int) -> set[int]:
    """Sorts partially; among cells at the same x any may be selected."""
    if not count:
        return set()
    positions = np.array([node[index][0].item() for index in range(len(node))])
    return set(np.argpartition(positions, count - 1)[:count].tolist())


# Reward: a dictionary of components and of their sum.


def reward_before(values: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Builds a new dictionary in every step."""
    result = {"total": 0.0, **values}
    for name, weight in weights.items():
        result["total"] += weight * result[name]
    return result


def reward_seed(
    template: Mapping[str, float], values: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Fills in a copy of a template."""
    result = dict(template)
    for name, weight in weights.items():
        result[name] = values[name]
        result["total"] += weight * values[name]
    return result


# Entropy.


def entropy_before(distribution: Beta | Normal, samples: int) -> Tensor:
    """Estimates the entropy by Monte Carlo, summed over the parameters of an action."""
    return -distribution.log_prob(distribution.sample((samples,))).mean(0).sum(-1)


def entropy_seed(distribution: Normal) -> Tensor:
    """Computes that of the raw Gaussian in closed form, not that of the executed action."""
    return distribution.entropy().sum(-1)


# Advantages: A_t = r_t + γ V(s_{t+1}) − V(s_t) + γ λ A_{t+1} of one episode.


def gae_before(episode: Episode, discount: float, gae_lambda: float) -> Estimate:
    """Elements of tensors, each put at the front of a list."""
    advantages: list[Tensor] = []
    returns: list[Tensor] = []
    running = torch.zeros(())
    rewards, values, next_values = episode
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + discount * next_values[step] - values[step]
        running = delta + discount * gae_lambda * running
        advantages.insert(0, running)
        returns.insert(0, running + values[step])
    return Estimate(torch.stack(advantages), torch.stack(returns))


def gae_seed(episode: Episode, discount: float, gae_lambda: float) -> Estimate:
    """Elements of tensors, each written into a tensor that is there already."""
    rewards, values, next_values = episode
    advantages, returns = torch.empty(len(rewards)), torch.empty(len(rewards))
    running = torch.zeros(())
    for step in range(len(rewards) - 1, -1, -1):
        delta = rewards[step] + discount * next_values[step] - values[step]
        running = delta + discount * gae_lambda * running
        advantages[step] = running
        returns[step] = running + values[step]
    return Estimate(advantages, returns)


# An iteration.


class Ways(NamedTuple):
    """Holds the implementations of what the proposal changes; the entropy was in closed form."""

    leftmost: Callable[[Tensor, int], set[int]]
    reward: Callable[[dict[str, float]], dict[str, float]]
    advantages: Loop


TEMPLATE = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)
BEFORE = Ways(leftmost_before, partial(reward_before, weights=GOAL_WEIGHTS), gae_before)
SEED = Ways(leftmost_seed, partial(reward_seed, TEMPLATE, weights=GOAL_WEIGHTS), gae_seed)


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
