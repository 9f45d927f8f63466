"""what is seen of colonies -> the numbers of a distribution over actions, and values.

Cells are tokens beside one token of the whole colony; the tree enters by each cell's parent. With in-degrees of at
most 1 a graph convolution would attend to a single neighbour, whose weight is always 1.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.replay.rollouts import Graphs

TRUNK = 64
SMALL_GAIN = 0.01
"""Of the policy's last layer: the first policy is the same everywhere."""


class Output(NamedTuple):
    """raw: of the policy's distribution, in two halves. value: the return, whole or of each component."""

    raw: Float[Tensor, "batch raw"]
    value: Float[Tensor, "batch *component"]


class Attention(nn.Module):
    """Every token asks every other one of its own colony."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)  # softmax does not see what is added to all scores

    def forward(self, tokens: Tensor, exists: Bool[Tensor, "batch token"]) -> Tensor:
        asked, offered, told = (
            layer(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        found = functional.scaled_dot_product_attention(asked, offered, told, attn_mask=exists[:, None, None])
        return self.out(found.transpose(1, 2).flatten(2))


class ColonyAttention(Attention):
    """Only the first token asks; the same as `Attention` there, for less.

    Scores are (W_k x)·q = x·(W_kᵀ q), and Σ a W_v x = W_v Σ a x: keys and values of single cells are never made.
    """

    def forward(self, tokens: Tensor, exists: Bool[Tensor, "batch token"]) -> Tensor:
        d, size = tokens.shape[2], tokens.shape[2] // self.heads
        asked = self.query(tokens[:, 0]).unflatten(1, (self.heads, size))
        asked = torch.einsum("bhs,hsd->bhd", asked, self.key.weight.view(self.heads, size, d))
        scores = torch.bmm(asked, tokens.transpose(1, 2)) * size**-0.5
        attention = scores.masked_fill(~exists[:, None], -torch.inf).softmax(2)
        seen = torch.bmm(attention, tokens)
        told = torch.einsum("bhd,hsd->bhs", seen, self.value.weight.view(self.heads, size, d)).flatten(1)
        return self.out(told + self.value.bias)[:, None]


class Block(nn.Module):
    """X + O(Attn(LN X)), then X + F2(GELU(F1(LN X))), of the tokens that asked."""

    def __init__(self, d: int, attention: Attention) -> None:
        super().__init__()
        self.before_attention, self.before_mix = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = attention
        self.mix = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, tokens: Tensor, exists: Bool[Tensor, "batch token"]) -> Tensor:
        found = self.attention(self.before_attention(tokens), exists)
        changed = tokens[:, : found.shape[1]] + found
        return changed + self.mix(self.before_mix(changed))


class Network(nn.Module):
    """Actor and critic of colonies, on a common encoder."""

    def __init__(self, config: ActorCriticConfig) -> None:
        super().__init__()
        chosen, env = config.network, config.env
        d, numbers = chosen.d, len(env.action.active_params)
        self.cells = nn.Linear(2 * NODE_FEATURES[env.features], d, bias=False)
        self.colony = nn.Sequential(nn.Linear(GRAPH_FEATURES[env.features], d), nn.GELU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(Block(d, Attention(d, chosen.heads)) for _ in range(chosen.layers - 1))
        self.last = Block(d, ColonyAttention(d, chosen.heads))
        self.actor = _trunk(2 * d, 2 * numbers, SMALL_GAIN)
        self.total = chosen.value_heads == "total"
        self.critic = _trunk(2 * d, 1 if self.total else len(env.reward.weighted), 1.0)

    def forward(self, graphs: Graphs) -> Output:
        node, graph, parent, mask = graphs
        of_parent = node.gather(1, parent.clamp(min=0)[..., None].expand_as(node)) * (parent >= 0)[..., None]
        cells = self.cells(torch.cat([node, of_parent], 2) * mask[..., None])
        tokens = torch.cat([self.colony(graph)[:, None], cells], 1)
        exists = functional.pad(mask, (1, 0), value=True)
        for block in self.blocks:
            tokens = block(tokens, exists)
        mean = (tokens[:, 1:] * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        state = torch.cat([self.last(tokens, exists)[:, 0], mean], 1)
        value = self.critic(state)
        return Output(self.actor(state).float(), (value[:, 0] if self.total else value).float())


def init(config: ActorCriticConfig, seed: int) -> Network:
    """A network with fresh weights, which depend on the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(config)


def _trunk(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    head = nn.Linear(TRUNK, outputs)
    nn.init.orthogonal_(head.weight, gain)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, TRUNK), nn.Tanh(), head)
