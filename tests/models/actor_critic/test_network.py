"""What the network sees, and what it must not care about."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quatrain.frameworks.torch import seeded
from quatrain.models.actor_critic.network import Attention, Network, Output, make_network
from quatrain.replay.rollouts import Graphs
from tests.conftest import small

CONFIG = small("actor_critic", network={"layers": 2, "value_heads": "components"})
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def init(config: Any, seed: int) -> Network:
    return seeded(lambda: make_network(config, config.world.spec_of(config)), seed)


def graphs(batch: int = 7, cells: int = 11, seed: int = 0) -> Graphs:
    """Random forests of 1 to `cells` cells."""
    rng = np.random.default_rng(seed)
    n = np.concatenate([[1, cells], rng.integers(1, cells + 1, batch - 2)])
    mask = np.arange(cells) < n[:, None]
    parent = np.where(mask, rng.integers(-1, np.maximum(np.arange(cells), 1), (batch, cells)), -1)
    parent[:, 0] = -1
    node = (rng.normal(size=(batch, cells, 8)) * mask[..., None]).astype(np.float32)
    graph = rng.normal(size=(batch, 10)).astype(np.float32)
    return Graphs(*map(torch.tensor, (node, graph, parent, mask)))


@pytest.fixture(scope="module")
def net() -> Network:
    net = init(CONFIG, seed=3)
    with torch.no_grad():
        for param in net.parameters():  # the policy's last layer begins near 0
            param.add_(0.1 * torch.randn(param.shape, generator=torch.Generator().manual_seed(4)))
    return net


def both(output: Output) -> Tensor:
    return torch.cat([output.raw, output.value], 1)


def test_padding_is_not_seen(net: Network):
    narrow = graphs()
    wide = Graphs(
        functional.pad(narrow.node, (0, 0, 0, 20)),
        narrow.graph,
        functional.pad(narrow.parent, (0, 20), value=-1),
        functional.pad(narrow.mask, (0, 20)),
    )
    dirty = wide._replace(node=torch.where(wide.mask[..., None], wide.node, 7.0))
    torch.testing.assert_close(both(net(dirty)), both(net(narrow)), **CLOSE)


def test_the_order_of_cells_is_no_matter(net: Network):
    item = graphs()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    place, parent = order.argsort(), item.parent[:, order]
    parent = torch.where(parent >= 0, place[parent], -1)
    moved = Graphs(item.node[:, order], item.graph, parent, item.mask[:, order])
    torch.testing.assert_close(both(net(moved)), both(net(item)), **CLOSE)


def test_a_cell_and_the_tree_are_seen_by_policy_and_value_of_their_colony_alone(net: Network):
    before = graphs()
    node, parent = before.node.clone(), before.parent.clone()
    node[1, 3] += 1
    parent[1, 5] = 0 if parent[1, 5] != 0 else 1
    for after in (before._replace(node=node), before._replace(parent=parent)):
        moved = both(net(before)) != both(net(after))
        assert moved[1].all()
        assert not moved[[0, 2, 3, 4, 5, 6]].any()


def test_encoder_graph_sees_the_features_of_the_colony_alone():
    config = small("actor_critic", network={"encoder": "graph", "layers": 2})
    net = init(config, seed=0)
    item = graphs()
    no_cells = Graphs(item.node[:, :0], item.graph, item.parent[:, :0], item.mask[:, :0])
    torch.testing.assert_close(net(item), net(no_cells))
    layers = [layer for layer in net.actor if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [16, 16, 10]
    other = no_cells._replace(graph=item.graph + torch.eye(7, 10))
    moved = net(no_cells).raw != net(other).raw
    assert moved.all()


@pytest.mark.parametrize("encoder", ["graph", "attention"])
def test_values_stay_when_their_scale_changes(encoder: str):
    changes = {"encoder": encoder, "value_heads": "components"}
    net = init(small("actor_critic", network=changes), seed=0)
    before = net(graphs())
    mean, std = torch.linspace(-3, 5, 6), torch.linspace(0.1, 50, 6)
    for _ in range(2):  # also from a scale that is not the first
        net.rescale_values(mean, std)
        torch.testing.assert_close(net(graphs()), before, atol=1e-4, rtol=1e-4)
        assert torch.equal(net.value_mean, mean)
        mean, std = mean - 1, std * 2


@pytest.mark.parametrize(("layers", "heads"), [(1, "total"), (2, "components")])
def test_every_weight_gets_a_gradient_and_heads_have_trunks_of_their_own(layers: int, heads: str):
    config = small("actor_critic", network={"layers": layers, "value_heads": heads})
    net = init(config, seed=0)
    mixed = torch.Generator().manual_seed(0)
    for part, other in (("raw", net.critic), ("value", net.actor)):
        net.zero_grad()
        output = getattr(net(graphs()), part)
        (output * torch.randn(output.shape, generator=mixed)).sum().backward()
        without = {*other.parameters()}
        for param in net.parameters():
            assert (param.grad is None) == (param in without)
            assert param in without or param.grad.abs().max() > 1e-8


def test_the_colony_alone_asks_the_same_as_if_all_asked():
    attention = Attention(12, 3)
    tokens, mask = torch.randn(5, 9, 12), torch.arange(8) < torch.tensor([0, 2, 8, 4, 1])[:, None]
    whole = attention(tokens, functional.pad(mask, (1, 0), value=True))[:, 0]
    alone = attention.of_colony(tokens[:, 0], tokens[:, 1:], mask)
    torch.testing.assert_close(alone, whole, **CLOSE)


def test_groups_are_one_batch(net: Network):
    groups = graphs(7), graphs(5, 4, seed=1)
    expected = torch.cat([both(net(group)) for group in groups])
    torch.testing.assert_close(both(net(*groups)), expected, **CLOSE)


def test_the_first_policy_is_nearly_the_same_everywhere_and_leaves_torch_as_it_was():
    before = torch.get_rng_state()
    assert init(CONFIG, seed=0)(graphs()).raw.abs().max() < 0.1
    assert torch.equal(torch.get_rng_state(), before)
