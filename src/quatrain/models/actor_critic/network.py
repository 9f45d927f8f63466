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
from quatrain.replay.rollouts.buffer import Graphs

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

    def forward(
        self, tokens: Tensor, exists: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token d"]:
        asked, offered, told = (
            layer(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        found = functional.scaled_dot_product_attention(
            asked, offered, told, attn_mask=exists[:, None, None]
        )
        return self.out(found.transpose(1, 2).flatten(2))

    def of_colony(
        self, colony: Tensor, cells: Tensor, mask: Bool[Tensor, "batch cell"]
    ) -> Float[Tensor, "batch d"]:
        """What the colony's token alone is told, for less.

        Scores are (W_k x)·q = x·(W_kᵀ q), and Σ a W_v x = W_v Σ a x: keys and values of single cells are never made.
        """
        by_head = (self.heads, -1, colony.shape[1])
        asked = self.query(colony).unflatten(1, by_head[:2])
        asked = (
            torch.einsum("bhs,hsd->bhd", asked, self.key.weight.view(by_head))
            * asked.shape[2] ** -0.5
        )
        of_cells = torch.bmm(asked, cells.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
        attention = torch.cat([asked @ colony[..., None], of_cells], 2).softmax(2)
        seen = torch.bmm(attention[..., 1:], cells) + attention[..., :1] * colony[:, None]
        told = torch.einsum("bhd,hsd->bhs", seen, self.value.weight.view(by_head)).flatten(1)
        return self.out(told + self.value.bias)


class Block(nn.Module):
    """X + O(Attn(LN X)), then X + F2(GELU(F1(LN X))), of the tokens that ask."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_mix = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = Attention(d, heads)
        self.mix = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(
        self, tokens: Tensor, exists: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token d"]:
        return self._mixed(tokens + self.attention(self.before_attention(tokens), exists))

    def of_colony(
        self, colony: Tensor, cells: Tensor, mask: Bool[Tensor, "batch cell"]
    ) -> Float[Tensor, "batch d"]:
        """The first of `forward`'s tokens."""
        told = self.attention.of_colony(
            self.before_attention(colony), self.before_attention(cells), mask
        )
        return self._mixed(colony + told)

    def _mixed(self, tokens: Tensor) -> Tensor:
        return tokens + self.mix(self.before_mix(tokens))


class Network(nn.Module):
    """Actor and critic of colonies, on a common encoder."""

    def __init__(self, config: ActorCriticConfig) -> None:
        super().__init__()
        chosen, env = config.network, config.env
        d, numbers = chosen.d, len(env.action.active_params)
        self.cells = nn.Linear(2 * NODE_FEATURES[env.features], d, bias=False)
        self.colony = nn.Sequential(
            nn.Linear(GRAPH_FEATURES[env.features], d), nn.GELU(), nn.Linear(d, d)
        )
        self.blocks = nn.ModuleList(Block(d, chosen.heads) for _ in range(chosen.layers))
        self.actor = _trunk(2 * d, 2 * numbers, SMALL_GAIN)
        self.total = chosen.value_heads == "total"
        self.critic = _trunk(2 * d, 1 if self.total else len(env.reward.weighted), 1.0)

    def forward(self, *groups: Graphs) -> Output:
        """Of the colonies of all groups, one after the other; a group is as wide as its largest colony."""
        state = torch.cat([self.encode(*graphs) for graphs in groups])
        value = self.critic(state)
        return Output(self.actor(state).float(), (value[:, 0] if self.total else value).float())

    def encode(
        self, node: Tensor, graph: Tensor, parent: Tensor, mask: Tensor
    ) -> Float[Tensor, "batch two_d"]:
        """Each colony's token after all blocks, beside the mean of its cells before the last one."""
        of_parent = (
            node.gather(1, parent.clamp(min=0)[..., None].expand_as(node))
            * (parent >= 0)[..., None]
        )
        colony, cells = (
            self.colony(graph),
            self.cells(torch.cat([node, of_parent], 2) * mask[..., None]),
        )
        for block in self.blocks[:-1]:
            tokens = block(
                torch.cat([colony[:, None], cells], 1), functional.pad(mask, (1, 0), value=True)
            )
            colony, cells = tokens[:, 0], tokens[:, 1:]
        share = mask / mask.sum(1, keepdim=True).clamp(min=1)
        mean = torch.bmm(share.to(cells.dtype)[:, None], cells)[:, 0]
        last = self.blocks[-1]
        assert isinstance(last, Block)
        return torch.cat([last.of_colony(colony, cells, mask), mean], 1)


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
