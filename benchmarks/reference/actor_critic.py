"""The original's way of acting and learning: one graph after another.

The network is the project's in its plainest form (every token asks, one head at a time). What the
original spends beside that, frozen residual networks on images of cells, can be added: their result
is computed, passed backward through, and counts for nothing.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from benchmarks.reference.colony import GOAL_WEIGHTS, Colony, Step, full, goal_control, light

IMAGE = 24
PROJECTED = 512
IMAGES_AT_ONCE = 64
CLIP = 10.0
"""Deviations at which features are clipped."""
LEAST, SHIFT, MOST = 1.0, 1.5, 500.0
"""Of the Beta distribution's parameters: 1 + min(softplus(raw + 1.5), 500)."""


class Graph(NamedTuple):
    """Holds one colony as the network reads it."""

    node: Tensor
    graph: Tensor
    parent: list[int]


class Shape(NamedTuple):
    node_features: int
    graph_features: int
    d: int
    layers: int
    heads: int
    numbers: int
    trunk: int = 64


class Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.query(tokens), self.key(tokens), self.value(tokens)
        size, result = tokens.shape[1] // self.heads, []
        for head in range(self.heads):
            columns = slice(head * size, (head + 1) * size)
            scores = query[:, columns] @ key[:, columns].T / math.sqrt(size)
            result.append(scores.softmax(1) @ value[:, columns])
        return self.out(torch.cat(result, 1))


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_mix = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = Attention(d, heads)
        self.mix = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.before_attention(tokens))
        return tokens + self.mix(self.before_mix(tokens))


class GraphNetwork(nn.Module):
    """Maps one graph to raw parameters of the policy and a value, with the project's names."""

    def __init__(self, shape: Shape, images: "Images | None" = None) -> None:
        super().__init__()
        self.shape, d = shape, shape.d
        self.cells = nn.Linear(2 * shape.node_features, d, bias=False)
        self.colony = nn.Sequential(nn.Linear(shape.graph_features, d), nn.GELU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(Block(d, shape.heads) for _ in range(shape.layers))
        self.actor = _trunk(2 * d, shape.trunk, 2 * shape.numbers)
        self.critic = _trunk(2 * d, shape.trunk, 1)
        self.images = images

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        none = torch.zeros_like(graph.node[0])
        above = [graph.node[parent] if parent >= 0 else none for parent in graph.parent]
        cells = self.cells(torch.cat([graph.node, torch.stack(above)], 1))
        tokens = torch.cat([self.colony(graph.graph)[None], cells])
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        mean = tokens[1:].mean(0)
        state = torch.cat([self.blocks[-1](tokens)[0], mean])
        raw, value = self.actor(state), self.critic(state)[0]
        return (raw, value) if self.images is None else (raw + self.images(tokens), value)


class Images(nn.Module):
    """Computes a frozen ResNet18 for the actor, and another for the critic."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.of_cell, self.of_graph = nn.Linear(2 * d, PROJECTED), nn.Linear(d, PROJECTED)
        self.actor_body, self.critic_body = resnet18(), resnet18()
        for body in (self.actor_body, self.critic_body):
            body.eval().requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns zero."""
        graph, cells = tokens[0], tokens[1:]
        observed = self.of_cell(torch.cat([cells, graph.expand_as(cells)], 1))
        result = [self.actor_body(_image(part)) for part in observed.split(IMAGES_AT_ONCE)]
        value_features = self.critic_body(_image(self.of_graph(graph)[None]))
        return 0.0 * (torch.cat(result).mean() + value_features.mean())


class Residual(nn.Module):
    """Computes two convolutions with a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        ends = _convolution(inputs, outputs, 3, stride), _convolution(outputs, outputs, 3, 1)
        self.body = nn.Sequential(*ends[0], nn.ReLU(), *ends[1])
        around = _convolution(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else []
        self.around = nn.Sequential(*around)

    def forward(self, observed: Tensor) -> Tensor:
        return torch.relu(self.body(observed) + self.around(observed))


def resnet18() -> nn.Sequential:
    """Returns 'Deep Residual Learning for Image Recognition', table 1, for images of one channel,
    without the classifier.
    """
    layers: list[nn.Module] = [*_convolution(1, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(width, outputs, stride), Residual(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _image(rows: Tensor) -> Tensor:
    return nn.functional.pad(rows, (0, IMAGE * IMAGE - PROJECTED)).view(-1, 1, IMAGE, IMAGE)


def _trunk(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(inputs), nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)
    )


# Acting.


class Box(NamedTuple):
    """Holds the bounds of what the policy chooses of an action, and constants that stand before."""

    low: Tensor
    high: Tensor
    constants: tuple[float, ...] = ()

    @property
    def log_volume(self) -> float:
        return (self.high - self.low).log().sum().item()

    def action(self, z: Tensor) -> list[float]:
        return [*self.constants, *(self.low + (self.high - self.low) * z).tolist()]


class Decision(NamedTuple):
    """Holds what the network sees of a colony, a draw of its policy, and its value."""

    graph: Graph
    z: Tensor
    log_prob: Tensor
    value: Tensor


class Player(NamedTuple):
    """Holds a network that acts. In each step the network is passed `passes` times, of which the
    first acts: the environment of the original acts again with a network of its own.
    """

    network: GraphNetwork
    scale: Any
    box: Box
    passes: int = 1

    @torch.no_grad()
    def decide(self, colony: Colony) -> Decision:
        graph = graph_of(colony, self.scale)
        raw, value = self.network(graph)
        for _ in range(self.passes - 1):
            self.network(graph)
        distribution = policy(raw)
        z = distribution.sample().clamp(1e-5, 1 - 1e-5)
        log_prob = distribution.log_prob(z).sum() - self.box.log_volume
        return Decision(graph, z, log_prob, value)

    def act(self, colony: Colony) -> Step:
        return rewarded_step(colony, self.box.action(self.decide(colony).z))


def rewarded_step(colony: Colony, action: Sequence[float]) -> Step:
    """Takes a step and computes its reward."""
    transition = colony.step(action)
    reward_of(transition)
    return transition


def reward_of(transition: Step) -> float:
    """Returns the weighted sum of all components."""
    components = goal_control(transition)
    return sum(weight * components[name] for name, weight in GOAL_WEIGHTS.items())


def graph_of(colony: Colony, scale: Any) -> Graph:
    """Returns the policy's observation, normalised by the project's means and deviations; of
    stiffness in `full` the logarithm.
    """
    state, is_light = colony.state(), colony.rules.features == "light"
    observed = light(state, colony.rules, colony.left) if is_light else full(state)
    node, graph = torch.tensor(observed.node), torch.tensor(observed.graph)
    if not is_light:
        node[:, 2], graph[-3:] = node[:, 2].log1p(), graph[-3:].log1p()
    node = ((node - scale.node_mean) / scale.node_std).clamp(-CLIP, CLIP)
    graph = ((graph - scale.graph_mean) / scale.graph_std).clamp(-CLIP, CLIP)
    return Graph(node, graph, state.parent)


def policy(raw: Tensor) -> Beta:
    """Returns the distribution of the parameters of an action within their bounds."""
    first, second = (LEAST + nn.functional.softplus(raw + SHIFT).clamp(max=MOST)).chunk(2, -1)
    return Beta(first, second)


# Learning.


class Sample(NamedTuple):
    """Holds a transition to learn from."""

    graph: Graph
    z: Tensor
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor


class Coefficients(NamedTuple):
    """Holds the coefficients of PPO's loss. log_volume: of the box of actions."""

    clip: float
    value: float
    entropy: float
    max_grad_norm: float
    log_volume: float


def loss(network: GraphNetwork, batch: Sequence[Sample], coefs: Coefficients) -> Tensor:
    """Computes PPO's loss graph by graph."""
    losses = []
    for transition in batch:
        raw, value = network(transition.graph)
        distribution = policy(raw)
        log_prob = distribution.log_prob(transition.z).sum() - coefs.log_volume
        ratio = (log_prob - transition.log_prob).exp()
        clipped = ratio.clamp(1 - coefs.clip, 1 + coefs.clip)
        gain = torch.minimum(ratio * transition.advantage, clipped * transition.advantage)
        entropy = distribution.entropy().sum() + coefs.log_volume
        error = (value - transition.returns).square()
        losses.append(coefs.value * error - gain - coefs.entropy * entropy)
    return torch.stack(losses).mean()


def update(
    network: GraphNetwork,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[Sample],
    coefs: Coefficients,
) -> float:
    """Takes one gradient step."""
    optimiser.zero_grad()
    result = loss(network, batch, coefs)
    result.backward()
    nn.utils.clip_grad_norm_(network.parameters(), coefs.max_grad_norm)
    optimiser.step()
    return result.item()
