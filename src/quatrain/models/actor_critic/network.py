"""observations -> raw parameters of a distribution over actions, and values.

Encoder `graph` sees the features of the whole graph alone, `scaled` a vector of any environment. In
encoder `attention` cells are tokens, with one token more for the whole graph. The tree of cells
enters through the features of each cell's parent: with in-degrees of at most 1 a graph convolution
would attend to a single neighbour, with weight 1.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Generator, Tensor, nn
from torch.nn import functional

from quatrain.envs.host.convolutions import BRIGHTEST, FEATURES, count_units, layers_of
from quatrain.frameworks.torch import seeded
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.policy import Params, Policy, make_policy
from quatrain.replay.rollouts import Graphs, Spec

TRUNK = 64
# Gain of the policy's last layer: the initial policy is nearly the same in all states.
SMALL_GAIN = 0.01
CLIP = 10.0  # standard deviations at which a scaled vector is clipped
SMALLEST_VARIANCE = 1e-8
ILLEGAL = -1e8  # log-odds of probability 0 with which entropy and KL divergence are finite

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Shape(NamedTuple):
    """Holds the sizes of a network. inputs: of policy and values. layers: hidden ones, or blocks of
    attention, of d units each. raw: parameters of a distribution. values: () or (components,).
    """

    inputs: int
    d: int
    layers: int
    raw: int
    values: tuple[int, ...]


class Output(NamedTuple):
    """Holds the raw parameters of the policy's distribution, in two halves, and the value, total or
    by component.
    """

    raw: Float[Tensor, "batch raw"]
    value: Float[Tensor, "batch *component"]


class Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d, d)
        self.value = nn.Linear(d, d)
        self.out = nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)  # softmax is invariant to a bias of the keys

    def forward(
        self, tokens: Tensor, exists: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token d"]:
        query, key, value = (
            layer(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=exists[:, None, None]
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def of_colony(
        self, colony: Tensor, cells: Tensor, mask: Bool[Tensor, "batch cell"]
    ) -> Float[Tensor, "batch d"]:
        """Computes attention for the colony token only (cheaper than for all tokens).

        Scores are (W_k x)·q = x·(W_kᵀ q), and Σ a W_v x = W_v Σ a x: keys and values of cells are
        never materialised.
        """
        by_head = (self.heads, -1, colony.shape[1])
        query = self.query(colony).unflatten(1, by_head[:2])
        scale = query.shape[2] ** -0.5
        query = torch.einsum("bhs,hsd->bhd", query, self.key.weight.view(by_head)) * scale
        scores = torch.bmm(query, cells.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
        attention = torch.cat([query @ colony[..., None], scores], 2).softmax(2)
        mixed = torch.bmm(attention[..., 1:], cells) + attention[..., :1] * colony[:, None]
        values = torch.einsum("bhd,hsd->bhs", mixed, self.value.weight.view(by_head))
        return self.out(values.flatten(1) + self.value.bias)


class Block(nn.Module):
    """Computes X + O(Attn(LN X)), then X + F2(GELU(F1(LN X)))."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(d)
        self.before_mix = nn.LayerNorm(d)
        self.attention = Attention(d, heads)
        self.mix = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(
        self, tokens: Tensor, exists: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token d"]:
        tokens = tokens + self.attention(self.before_attention(tokens), exists)
        return tokens + self.mix(self.before_mix(tokens))

    def of_colony(
        self, colony: Tensor, cells: Tensor, mask: Bool[Tensor, "batch cell"]
    ) -> Float[Tensor, "batch d"]:
        """Computes the first token of `forward`."""
        colony = colony + self.attention.of_colony(
            self.before_attention(colony), self.before_attention(cells), mask
        )
        return colony + self.mix(self.before_mix(colony))


class Network(nn.Module):
    """Maps what its subclass encodes of a graph by two networks, of the policy and of values.

    The last layer of the critic computes normalised values, for which `value_mean` and `value_std`
    of a total, or of each component, hold the scale.
    """

    actor: nn.Sequential
    critic: nn.Sequential
    value_mean: Tensor
    value_std: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.total = not shape.values
        self.register_buffer("value_mean", torch.zeros(shape.values))
        self.register_buffer("value_std", torch.ones(shape.values))

    def forward(self, *groups: Graphs) -> Output:
        """Returns the outputs of all groups, concatenated; a group is as wide as its largest
        graph.
        """
        encoded = torch.cat([self.encode(graphs) for graphs in groups])
        values = self.critic(encoded).float()
        value = self.value_mean + self.value_std * (values[:, 0] if self.total else values)
        return Output(self.actor(encoded).float(), value)

    @torch.no_grad()
    def rescale_values(
        self, mean: Float[Tensor, "*component"], std: Float[Tensor, "*component"]
    ) -> None:
        """Changes the scale of normalised values, and the last layer so that values stay the same.

        'Learning values across many orders of magnitude' (NeurIPS 2016), eq. 9: with the old scale
        σ, μ, w' = w σ / σ' and b' = (σ b + μ − μ') / σ'.
        """
        head = self.critic[-1]
        assert isinstance(head, nn.Linear)
        head.weight.mul_((self.value_std / std).reshape(-1, 1))
        head.bias.mul_(self.value_std).add_(self.value_mean - mean).div_(std)
        self.value_mean.copy_(mean)
        self.value_std.copy_(std)

    def encode(self, graphs: Graphs) -> Float[Tensor, "batch encoded"]:
        raise NotImplementedError

    def end_iteration(self, graph: Float[Tensor, "transitions graph_feature"]) -> None:
        """Learns from what was seen in an iteration, without gradients."""


class GraphNetwork(Network):
    """Takes the features of the whole graph as they are; policy and values share no layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.actor = _mlp(shape, _actor_head(shape, shape.d))
        self.critic = _mlp(shape, _critic_head(shape, shape.d))

    def encode(self, graphs: Graphs) -> Float[Tensor, "batch graph_feature"]:
        return graphs.graph


class ScaledNetwork(GraphNetwork):
    """Takes rows of an image, a vector and a mask of actions, each if there is one.

    The vector is scaled by its mean and deviation, which the weights hold, because they mean
    nothing without. Policy and values share the features of the image, as in 'Asynchronous Methods
    for Deep Reinforcement Learning' (2016). The policy gives illegal actions no probability.
    """

    obs_mean: Tensor
    obs_variance: Tensor
    obs_count: Tensor

    def __init__(
        self, shape: Shape, spec: Spec, scale: Literal["running", "dataset", "none"]
    ) -> None:
        begin = math.prod(spec.image) if spec.image else 0
        end = spec.graph_features - spec.mask
        features = FEATURES if spec.image else 0
        super().__init__(shape._replace(inputs=features + spec.graph_features - begin))
        self.clip = math.inf if scale == "none" else CLIP
        self.is_running = scale == "running"
        self.image, self.vector = spec.image, slice(begin, end)
        self.mask = slice(end, spec.graph_features) if spec.mask else None
        if spec.image:
            self.pixels = _convolutions(spec.image)
        self.register_buffer("obs_mean", torch.zeros(end - begin))
        self.register_buffer("obs_variance", torch.ones(end - begin))
        self.register_buffer("obs_count", torch.zeros(()))

    def forward(self, *groups: Graphs) -> Output:
        output = super().forward(*groups)
        if self.mask is None:
            return output
        legal = torch.cat([graphs.graph[:, self.mask] for graphs in groups]) > 0
        return output._replace(raw=output.raw.masked_fill(~legal, ILLEGAL))

    def encode(self, graphs: Graphs) -> Float[Tensor, "batch encoded"]:
        deviation = (self.obs_variance + SMALLEST_VARIANCE).sqrt()
        scaled = (graphs.graph[:, self.vector] - self.obs_mean) / deviation
        parts = [scaled.clamp(-self.clip, self.clip)]
        if self.image:
            pixels = graphs.graph[:, : math.prod(self.image)].unflatten(1, self.image)
            parts.insert(0, self.pixels(pixels.movedim(3, 1).float() / BRIGHTEST))
        if self.mask:
            parts.append(graphs.graph[:, self.mask].float())
        return torch.cat(parts, 1)

    @torch.no_grad()
    def end_iteration(self, obs: Shaped[Tensor, "transitions obs"]) -> None:
        """Adds observations to a running mean and variance, in place.

        Chan, Golub and LeVeque, 'Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances' (1979), eq. 2.1.
        """
        if not (self.is_running and self.obs_mean.numel()):
            return
        vectors = obs[:, self.vector]
        count = self.obs_count + len(vectors)
        share = len(vectors) / count
        difference = vectors.mean(0) - self.obs_mean
        variance = torch.lerp(self.obs_variance, vectors.var(0, correction=0), share)
        self.obs_variance.copy_(variance + share * (1 - share) * difference.square())
        self.obs_mean.add_(share * difference)
        self.obs_count.copy_(count)


def _convolutions(image: tuple[int, ...]) -> nn.Sequential:
    """Returns what computes the features of images, (batch, channel, row, column)."""
    parts: list[nn.Module] = []
    channels = image[2]
    for filters, side, stride, padding in layers_of(image):
        convolution = nn.Conv2d(channels, filters, side, stride, padding)
        parts += [_with_orthogonal(convolution, math.sqrt(2)), nn.ReLU()]
        channels = filters
    features = _orthogonal(count_units(image)[-1], FEATURES, math.sqrt(2))
    return nn.Sequential(*parts, nn.Flatten(), features, nn.ReLU())


class AttentionNetwork(Network):
    def __init__(self, shape: Shape, node_features: int, heads: int) -> None:
        super().__init__(shape)
        d = shape.d
        self.cells = nn.Linear(2 * node_features, d, bias=False)
        self.colony = nn.Sequential(nn.Linear(shape.inputs, d), nn.GELU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(shape.layers))
        self.actor = _trunk(2 * d, _actor_head(shape, TRUNK))
        self.critic = _trunk(2 * d, _critic_head(shape, TRUNK))

    def encode(self, graphs: Graphs) -> Float[Tensor, "batch two_d"]:
        """Returns each colony's token after all blocks, and the mean of its cells before the last
        block.
        """
        node, graph, parent, mask = graphs
        parent_index = parent.clamp(min=0)[..., None].expand_as(node)
        parent_node = node.gather(1, parent_index) * (parent >= 0)[..., None]
        colony = self.colony(graph)
        cells = self.cells(torch.cat([node, parent_node], 2) * mask[..., None])
        for block in self.blocks[:-1]:
            exists = functional.pad(mask, (1, 0), value=True)
            tokens = block(torch.cat([colony[:, None], cells], 1), exists)
            colony = tokens[:, 0]
            cells = tokens[:, 1:]
        share = mask / mask.sum(1, keepdim=True).clamp(min=1)
        mean = torch.bmm(share.to(cells.dtype)[:, None], cells)[:, 0]
        last = self.blocks[-1]
        assert isinstance(last, Block)
        return torch.cat([last.of_colony(colony, cells, mask), mean], 1)


def _actor_head(shape: Shape, inputs: int) -> nn.Linear:
    return _orthogonal(inputs, shape.raw, SMALL_GAIN)


def _critic_head(shape: Shape, inputs: int) -> nn.Linear:
    return _orthogonal(inputs, math.prod(shape.values), 1.0)


def _trunk(inputs: int, head: nn.Linear) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, TRUNK), nn.Tanh(), head)


def _mlp(shape: Shape, head: nn.Linear) -> nn.Sequential:
    sizes = [shape.inputs, *[shape.d] * shape.layers]
    hidden = [_orthogonal(before, after, math.sqrt(2)) for before, after in pairwise(sizes)]
    return nn.Sequential(*(part for layer in hidden for part in (layer, nn.Tanh())), head)


def _orthogonal(inputs: int, outputs: int, gain: float) -> nn.Linear:
    return _with_orthogonal(nn.Linear(inputs, outputs), gain)


def _with_orthogonal(layer: Layer, gain: float) -> Layer:
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


# A policy and its network.

# Limit of compiled programs: for each width of a batch one to act and two to learn, for full and
# for last minibatches.
PROGRAMS = 256


class ActorOutput(NamedTuple):
    """Holds the parameters of the distributions over actions, the actions of the deterministic
    policy, and values.
    """

    params: Params
    action: Tensor
    value: Float[Tensor, "batch *component"]


class Actor(NamedTuple):
    """Holds a policy and its network.

    forward: the network, perhaps compiled, for batches of the same few shapes. eager: the same for
    any shape.
    """

    policy: Policy
    forward: Callable[..., Output]
    eager: Callable[..., Output]

    @torch.no_grad()
    def params(self, graphs: Graphs) -> Params:
        """Returns the parameters of the distributions over actions."""
        return self.policy.distribution(self.eager(graphs).raw)

    @torch.no_grad()
    def value(self, graphs: Graphs) -> Float[Tensor, "batch *component"]:
        return self.eager(graphs).value

    def act(self, graphs: Graphs) -> Tensor:
        """Returns the actions of the deterministic policy."""
        return self.policy.action(self.policy.mean(self.params(graphs)))

    def outputs(self, graphs: Graphs) -> ActorOutput:
        """Returns what `params`, `act` and `value` do, by the network's outputs of one call."""
        output = self.eager(graphs)
        params = self.policy.distribution(output.raw)
        return ActorOutput(params, self.policy.action(self.policy.mean(params)), output.value)

    def draw(self, graphs: Graphs, generator: Generator) -> Tensor:
        return self.policy.action(self.policy.sample(self.params(graphs), generator))


def make_network(config: Config, spec: Spec) -> Network:
    """Returns a network with weights from torch's global generator."""
    section = config.network
    shape = Shape(
        inputs=spec.graph_features,
        d=section.d,
        layers=section.layers,
        raw=math.prod(make_policy(section.policy, spec).dist_params),
        values=() if section.value_heads == "total" else (spec.components,),
    )
    if section.encoder == "scaled":
        return ScaledNetwork(shape, spec, section.observation_scale)
    if section.encoder == "attention":
        return AttentionNetwork(shape, spec.node_features, section.heads)
    return GraphNetwork(shape)


def make_actor(config: Config, spec: Spec, network: Network) -> Actor:
    """Builds an actor; the config decides on compilation and, on a GPU, on half precision."""
    half = config.train.amp != "none" and on_gpu()
    eager = _in_half_precision(network) if half else network
    forward = eager
    if config.train.compile:
        torch._dynamo.config.recompile_limit = PROGRAMS
        forward = torch.compile(eager, dynamic=False)
    return Actor(make_policy(config.network.policy, spec), forward, eager)


def load_network(config: Config, spec: Spec, params: dict[str, Tensor]) -> Network:
    network = seeded(lambda: make_network(config, spec), 0)
    network.load_state_dict(params)
    return network


def load_actor(config: Config, spec: Spec, params: dict[str, Tensor]) -> Actor:
    """Returns the policy with these weights."""
    return make_actor(config, spec, load_network(config, spec, params))


def on_gpu() -> bool:
    return torch.get_default_device().type != "cpu"


def _in_half_precision(network: Network) -> Callable[..., Output]:
    def forward(*groups: Graphs) -> Output:
        with torch.autocast(groups[0].node.device.type, torch.bfloat16):
            return network(*groups)

    return forward
