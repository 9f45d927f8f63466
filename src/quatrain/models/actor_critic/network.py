"""observations of colonies -> raw parameters of a distribution over actions, and values.

Cells are tokens, with one token more for the whole colony. The tree of cells enters through the
features of each cell's parent: with in-degrees of at most 1 a graph convolution would attend to a
single neighbour, with weight 1.
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
# Gain of the policy's last layer: the initial policy is nearly the same in all states.
SMALL_GAIN = 0.01


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
        self,
        tokens: Tensor,
        exists: Bool[Tensor, "batch token"],
    ) -> Float[Tensor, "batch token d"]:
        query, key, value = (
            layer(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=exists[:, None, None],
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def of_colony(
        self,
        colony: Tensor,
        cells: Tensor,
        mask: Bool[Tensor, "batch cell"],
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
        self,
        tokens: Tensor,
        exists: Bool[Tensor, "batch token"],
    ) -> Float[Tensor, "batch token d"]:
        tokens = tokens + self.attention(self.before_attention(tokens), exists)
        return tokens + self.mix(self.before_mix(tokens))

    def of_colony(
        self,
        colony: Tensor,
        cells: Tensor,
        mask: Bool[Tensor, "batch cell"],
    ) -> Float[Tensor, "batch d"]:
        """Computes the first token of `forward`."""
        colony = colony + self.attention.of_colony(
            self.before_attention(colony),
            self.before_attention(cells),
            mask,
        )
        return colony + self.mix(self.before_mix(colony))


class Network(nn.Module):
    def __init__(self, config: ActorCriticConfig) -> None:
        super().__init__()
        env = config.env
        d = config.network.d
        self.total = config.network.value_heads == "total"
        self.cells = nn.Linear(2 * NODE_FEATURES[env.features], d, bias=False)
        self.colony = nn.Sequential(
            nn.Linear(GRAPH_FEATURES[env.features], d),
            nn.GELU(),
            nn.Linear(d, d),
        )
        self.blocks = nn.ModuleList(
            Block(d, config.network.heads) for _ in range(config.network.layers)
        )
        self.actor = _trunk(2 * d, 2 * len(env.action.active_params), SMALL_GAIN)
        self.critic = _trunk(2 * d, 1 if self.total else len(env.reward.weighted), 1.0)

    def forward(self, *groups: Graphs) -> Output:
        """Returns the outputs of all groups, concatenated; a group is as wide as its largest
        colony.
        """
        encoded = torch.cat([self.encode(*graphs) for graphs in groups])
        values = self.critic(encoded)
        value = values[:, 0] if self.total else values
        return Output(self.actor(encoded).float(), value.float())

    def encode(
        self,
        node: Tensor,
        graph: Tensor,
        parent: Tensor,
        mask: Tensor,
    ) -> Float[Tensor, "batch two_d"]:
        """Returns each colony's token after all blocks, and the mean of its cells before the last
        block.
        """
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


def init(config: ActorCriticConfig, seed: int) -> Network:
    """Returns a network whose initial weights depend on the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(config)


def _trunk(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    head = nn.Linear(TRUNK, outputs)
    nn.init.orthogonal_(head.weight, gain)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, TRUNK), nn.Tanh(), head)
