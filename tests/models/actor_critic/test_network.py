"""What the network sees, and what it must not care about."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quatrain.models.actor_critic import network
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Attention
from quatrain.replay.rollouts.buffer import Graphs
from tests.conftest import small


def config(**sections: Any) -> ActorCriticConfig:
    return small(
        "actor_critic",
        network={"d": 16, "heads": 2, "layers": 2, "value_heads": "components"},
        **sections,
    )


def graphs(batch: int = 7, cells: int = 11, seed: int = 0) -> Graphs:
    """Random forests of 1 to `cells` cells."""
    rng = np.random.default_rng(seed)
    n = np.concatenate([[1, cells], rng.integers(1, cells + 1, batch - 2)])
    mask = np.arange(cells) < n[:, None]
    parent = np.where(mask, rng.integers(-1, np.maximum(np.arange(cells), 1), (batch, cells)), -1)
    parent[:, 0] = -1
    node = rng.normal(size=(batch, cells, 8)) * mask[..., None]
    numbers = (
        node.astype(np.float32),
        rng.normal(size=(batch, 10)).astype(np.float32),
        parent,
        mask,
    )
    return Graphs(*map(torch.tensor, numbers))


@pytest.fixture(scope="module")
def net() -> network.Network:
    net = network.init(config(), seed=3)
    with torch.no_grad():
        for param in net.parameters():  # the policy's last layer begins near 0
            param.add_(0.1 * torch.randn(param.shape, generator=torch.Generator().manual_seed(4)))
    return net


def both(output: network.Output) -> Tensor:
    return torch.cat([output.raw, output.value], 1)


def test_padding_changes_nothing(net: network.Network):
    narrow = graphs()
    wide = Graphs(
        nn.functional.pad(narrow.node, (0, 0, 0, 20)),
        narrow.graph,
        nn.functional.pad(narrow.parent, (0, 20), value=-1),
        nn.functional.pad(narrow.mask, (0, 20)),
    )
    torch.testing.assert_close(both(net(wide)), both(net(narrow)), atol=1e-6, rtol=1e-5)


def test_what_stands_in_padding_is_not_seen(net: network.Network):
    clean = graphs()
    dirty = clean._replace(node=torch.where(clean.mask[..., None], clean.node, 7.0))
    torch.testing.assert_close(both(net(dirty)), both(net(clean)), atol=1e-6, rtol=1e-5)


def test_the_order_of_cells_is_no_matter(net: network.Network):
    item = graphs()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    parent = item.parent[:, order]
    moved = Graphs(
        item.node[:, order],
        item.graph,
        torch.where(parent >= 0, place[parent], -1),
        item.mask[:, order],
    )
    torch.testing.assert_close(both(net(moved)), both(net(item)), atol=1e-5, rtol=1e-5)


def test_a_batch_gives_each_colony_its_own_value(net: network.Network):
    result = both(net(graphs(64)))
    assert len({tuple(row) for row in result.tolist()}) == 64
    alone = both(net(Graphs(*(column[5:6] for column in graphs(64)))))
    torch.testing.assert_close(alone[0], result[5], atol=1e-5, rtol=1e-5)


def test_one_cell_changes_policy_and_value_of_its_colony_alone(net: network.Network):
    before = graphs()
    node = before.node.clone()
    node[1, 3] += 1
    first, second = net(before), net(before._replace(node=node))
    for item, other in ((first.raw, second.raw), (first.value, second.value)):
        assert (item[1] != other[1]).all()
        assert torch.equal(item[[0, 2, 3, 4, 5, 6]], other[[0, 2, 3, 4, 5, 6]])


def test_the_tree_is_seen(net: network.Network):
    before = graphs()
    parent = before.parent.clone()
    parent[1, 5] = 0 if parent[1, 5] != 0 else 1
    assert (both(net(before))[1] != both(net(before._replace(parent=parent)))[1]).all()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("heads", ["total", "components"])
def test_every_weight_gets_a_gradient(layers: int, heads: str):
    selected = small(
        "actor_critic", network={"d": 16, "heads": 2, "layers": layers, "value_heads": heads}
    )
    net = network.init(selected, seed=0)
    output = net(graphs())
    mixed = torch.Generator().manual_seed(0)
    loss = sum((part * torch.randn(part.shape, generator=mixed)).sum() for part in output)
    loss.backward()
    for name, param in net.named_parameters():
        assert param.grad is not None, name
        assert param.grad.abs().max() > 1e-8, name


def test_value_and_policy_have_trunks_of_their_own(net: network.Network):
    net.zero_grad()
    net(graphs()).value.sum().backward()
    assert all(param.grad is None for param in net.actor.parameters())
    assert all(param.grad is not None for param in net.critic.parameters())
    net.zero_grad()
    net(graphs()).raw.sum().backward()
    assert all(param.grad is None for param in net.critic.parameters())


def test_the_colony_alone_asks_the_same_as_if_all_asked():
    attention = Attention(12, 3)
    tokens, mask = torch.randn(5, 9, 12), torch.arange(8) < torch.tensor([0, 2, 8, 4, 1])[:, None]
    whole = attention(tokens, nn.functional.pad(mask, (1, 0), value=True))[:, 0]
    torch.testing.assert_close(
        attention.of_colony(tokens[:, 0], tokens[:, 1:], mask), whole, atol=1e-6, rtol=1e-5
    )


def test_groups_are_one_batch(net: network.Network):
    whole, other = graphs(7), graphs(5, 4, seed=1)
    result = net(whole, other)
    torch.testing.assert_close(result.raw[:7], net(whole).raw, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(result.value[7:], net(other).value, atol=1e-6, rtol=1e-5)


def test_the_first_policy_is_nearly_the_same_everywhere():
    assert network.init(config(), seed=0)(graphs()).raw.abs().max() < 0.1


def test_weights_depend_on_the_seed_alone_and_leave_torch_as_it_was():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    item, same, other = (network.init(config(), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(item.cells.weight, same.cells.weight)
    assert not torch.equal(item.cells.weight, other.cells.weight)
