"""The original's way of acting and learning: one colony, one graph and one step after another

The network and the policy are the project's, called with one graph at a time. Left out is what the
original computes beside them, frozen residual networks on an image of each cell. Parts that a
document proposes to change are here both ways.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from benchmarks.reference.colony import GOAL_WEIGHTS, Colony, Step, goal_control, light
from quatrain.envs.colony.dynamics import World
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.colony import CLIP, Scale, View
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.policy import Policy
from quatrain.replay.rollouts import Graphs

Estimates = tuple[Tensor, Tensor]
"""Advantage and return of each step."""


class Actor(NamedTuple):
    """Holds the project's policy and network, and what they see of plates."""

    config: ActorCriticConfig
    view: View
    playing: networks.Actor

    @property
    def world(self) -> World:
        return self.view.world

    @property
    def scale(self) -> Scale:
        return self.view.scale

    @property
    def policy(self) -> Policy:
        return self.playing.policy

    @property
    def eager(self) -> Any:
        return self.playing.eager

    def action(self, z: Tensor) -> list[float]:
        return self.view.whole_action(self.policy.action(z))[0].tolist()


# Selection: row i of `node` is a cell, its first column grows with x.


def sorted_leftmost(node: Tensor, count: int) -> set[int]:
    """Sorts a list of pairs by x; cells are read one by one."""
    positions = [(index, node[index][0].item()) for index in range(len(node))]
    positions.sort(key=lambda pair: pair[1])
    return {index for index, _ in positions[:count]}


def partitioned_leftmost(node: Tensor, count: int) -> set[int]:
    """Sorts partially, as proposed; among cells at the same x any may be selected."""
    if not count:
        return set()
    positions = np.array([node[index][0].item() for index in range(len(node))])
    return set(np.argpartition(positions, count - 1)[:count].tolist())


# Reward: a dictionary of components and of their sum.


def reward_of(paid: Mapping[str, float]) -> dict[str, float]:
    """Builds a new dictionary in every step."""
    result = {"total": 0.0, **paid}
    for name, weight in GOAL_WEIGHTS.items():
        result["total"] += weight * result[name]
    return result


TEMPLATE = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)


def reward_by_template(paid: Mapping[str, float]) -> dict[str, float]:
    """Fills in a copy of a template, as proposed."""
    result = dict(TEMPLATE)
    for name, weight in GOAL_WEIGHTS.items():
        result[name] = paid[name]
        result["total"] += weight * paid[name]
    return result


# Advantages: A_t = r_t + γ V(s_{t+1}) − V(s_t) + γ λ A_{t+1} of one episode. `values` has one more
# entry than there are steps.


def listed_advantages(
    rewards: Tensor, values: Tensor, discount: float, gae_lambda: float
) -> Estimates:
    """Puts each step at the front of a list."""
    advantages: list[Tensor] = []
    returns: list[Tensor] = []
    running = torch.zeros(())
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + discount * values[step + 1] - values[step]
        running = delta + discount * gae_lambda * running
        advantages.insert(0, running)
        returns.insert(0, running + values[step])
    return torch.stack(advantages), torch.stack(returns)


def written_advantages(
    rewards: Tensor, values: Tensor, discount: float, gae_lambda: float
) -> Estimates:
    """Writes each step into a tensor that is there already, as proposed."""
    advantages, returns = torch.empty_like(rewards), torch.empty_like(rewards)
    running = torch.zeros(())
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + discount * values[step + 1] - values[step]
        running = delta + discount * gae_lambda * running
        advantages[step] = running
        returns[step] = running + values[step]
    return advantages, returns


class Ways(NamedTuple):
    """Holds the parts that the document proposes to change."""

    leftmost: Callable[[Tensor, int], set[int]]
    reward: Callable[[Mapping[str, float]], dict[str, float]]
    advantages: Callable[[Tensor, Tensor, float, float], Estimates]


AS_IT_WAS = Ways(sorted_leftmost, reward_of, listed_advantages)
PROPOSED = Ways(partitioned_leftmost, reward_by_template, written_advantages)


# Acting.


class Decision(NamedTuple):
    """Holds what the network sees of a colony, a draw of its policy, and its value."""

    graph: Graphs
    z: Tensor
    log_prob: Tensor
    value: Tensor


@torch.no_grad()
def decide(actor: Actor, colony: Colony, generator: Generator) -> Decision:
    graph = graph_of(colony, actor.scale)
    output = actor.eager(graph)
    params = actor.policy.distribution(output.raw)
    z = actor.policy.sample(params, generator)
    return Decision(graph, z, actor.policy.log_prob(params, z), output.value)


def act(actor: Actor, colony: Colony, generator: Generator) -> Step:
    """Takes one step and computes its reward."""
    action = actor.action(decide(actor, colony, generator).z)
    result = colony.step(action)
    reward_of(goal_control(result))
    return result


def graph_of(colony: Colony, scale: Scale) -> Graphs:
    """Returns the policy's observation of features `light`, a batch of one."""
    state = colony.state()
    observed = light(state, colony.rules, colony.left)
    node, graph = torch.tensor([observed.node]), torch.tensor([observed.graph])
    node = ((node - scale.node_mean) / scale.node_std).clamp(-CLIP, CLIP)
    graph = ((graph - scale.graph_mean) / scale.graph_std).clamp(-CLIP, CLIP)
    parent = torch.tensor([state.parent])
    return Graphs(node, graph, parent, torch.ones_like(parent, dtype=torch.bool))


# Learning.


def loss(
    actor: Actor, decisions: Sequence[Decision], advantages: Tensor, returns: Tensor
) -> Tensor:
    """Computes PPO's loss graph by graph."""
    train, policy, losses = actor.config.train, actor.policy, []
    for decision, advantage, target in zip(decisions, advantages, returns, strict=True):
        output = actor.eager(decision.graph)
        params = policy.distribution(output.raw)
        ratio = (policy.log_prob(params, decision.z) - decision.log_prob).exp()
        clipped = ratio.clamp(1 - train.clip, 1 + train.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        error = (output.value - target).square()
        entropy = train.entropy_start * policy.entropy(params)
        losses.append(train.value_coef * error - gain - entropy)
    return torch.cat(losses).mean()


class Player(NamedTuple):
    """Holds an actor that learns."""

    actor: Actor
    optimiser: Optimizer
    generator: Generator


def iterate(player: Player, colony: Colony, ways: Ways, steps: int) -> list[float]:
    """Runs one iteration within one episode; returns the loss of each epoch."""
    actor, train = player.actor, player.actor.config.train
    decisions, rewards = [], []
    for _ in range(steps):
        decision = decide(actor, colony, player.generator)
        decisions.append(decision)
        action = actor.action(decision.z)
        # The policy also marks the cells to delete, which the environment determines itself.
        node = decision.graph.node[0]
        ways.leftmost(node, int(action[0] * len(node)))
        rewards.append(ways.reward(goal_control(colony.step(action)))["total"])
    last = decide(actor, colony, player.generator)
    values = torch.cat([decision.value for decision in (*decisions, last)])
    estimates = ways.advantages(torch.tensor(rewards), values, train.discount, train.gae_lambda)
    advantages = (estimates[0] - estimates[0].mean()) / (estimates[0].std(correction=0) + 1e-8)
    return [
        update(player, loss(actor, decisions, advantages, estimates[1]))
        for _ in range(train.epochs)
    ]


def update(player: Player, value: Tensor) -> float:
    """Takes one gradient step."""
    player.optimiser.zero_grad()
    value.backward()
    params = player.optimiser.param_groups[0]["params"]
    nn.utils.clip_grad_norm_(params, player.actor.config.train.max_grad_norm)
    player.optimiser.step()
    return value.item()
