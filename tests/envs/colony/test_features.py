"""Observations of colonies equal those computed cell by cell."""

import math

import numpy as np
import pytest
import torch

from benchmarks.reference import colony as plain
from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.colony.dynamics import Colonies, World, advance
from quatrain.envs.colony.features import observe
from tests.colonies import colonies_of, wandering, world
from tests.conftest import shapes_unchecked
from tests.envs.colony.test_hull import decided

CORNER = 7
"""The column of the full features that rounding may decide."""


def plain_state(some_world: World, colonies: Colonies, row: int) -> plain.State:
    n, plate = int(colonies.n[row]), some_world.intensity[int(colonies.substrate[row])]
    x, y = colonies.pos[row, :n].T
    leaves = (x, y, plate[x.long()], colonies.parent[row], colonies.pid[row], colonies.age[row])
    return plain.State(*(leaf[:n].tolist() for leaf in (*leaves, colonies.new[row])))


def close(result: torch.Tensor, expected: list, tolerance: float) -> None:
    """Asserts closeness relative to the size of each number, at least 1."""
    scale = np.maximum(np.abs(expected), 1)
    np.testing.assert_allclose(result.numpy() / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("steps", "spare"), [(0, 0), (4, 7), (40, 20)])
@pytest.mark.parametrize("features", ["light", "full"])
def test_features_are_those_of_a_plain_loop_whatever_the_padding(features, steps, spare):
    some_world = world(features=features)
    with shapes_unchecked():
        colonies = wandering(some_world, 30, steps, seed=steps)
    slots = min(int(colonies.n.max()) + spare, 100)
    result = observe(some_world, colonies, slots)
    assert result.node.shape == (30, slots, NODE_FEATURES[features])
    assert result.graph.shape == (30, GRAPH_FEATURES[features])
    assert torch.equal(result.mask, torch.arange(slots) < colonies.n[:, None])
    assert (result.node[~result.mask] == 0).all()
    assert torch.equal(result.parent, colonies.parent[:, :slots])
    undecided = 0
    for row, n in enumerate(colonies.n.tolist()):
        state = plain_state(some_world, colonies, row)
        node = result.node[row, :n]
        if features == "light":
            expected = plain.light(state, some_world.rules, int(colonies.left[row]))
            close(node, expected.node, 2e-6)
            close(result.graph[row], expected.graph, 2e-6)
            continue
        expected = plain.full(state)
        others = [column for column in range(11) if column != CORNER]
        close(node[:, others], np.array(expected.node)[:, others], 5e-5)
        centrality = np.array(expected.node)[:, 5]  # a small number
        np.testing.assert_allclose(node[:, 5], centrality, rtol=1e-5)
        close(result.graph[row], expected.graph, 2e-5)
        sharp, inside = decided(colonies.pos[row, :n].numpy().astype(np.float64))
        assert (node[sharp, CORNER] == 1).all()
        assert (node[inside, CORNER] == 0).all()
        undecided += n - int(sharp.sum() + inside.sum())
    assert undecided < 0.02 * colonies.n.sum()


def test_one_cell():
    light, full = world(), world(features="full")
    alone = colonies_of(light.rules, [(30.0, 100.0)])
    close(observe(light, alone, 4).node[0, 0], [0.05, -0.5, 2.5 / 3.5, 0, 0, 0, 0, 0], 1e-6)
    stiffness = [2.5 / 3.5, math.log(2.5) / 3]
    graph = [1 / 40 - 1, math.log(1 / 40), 39, -0.9, -0.5, 0, *stiffness, -0.9, 0]
    close(observe(light, alone, 4).graph[0], graph, 1e-6)
    result = observe(full, alone, 4)
    assert result.node[0, 0].tolist() == [30, 100, 2.5, 0, 0, 1, 0, 1, 0, 0, 0]
    box = [30, 100, 30, 100, 0, 0, 0]
    assert result.graph[0].tolist() == [1, 0, 0, 30, 100, *box, *[0] * 4, *[2.5] * 3]


def test_two_cells_and_cells_in_one_point():
    full = world(features="full")
    result = observe(full, colonies_of(full.rules, [(10.0, 100.0), (13.0, 104.0)]), 2)
    assert result.node[0, :, 3:5].tolist() == [[0, 1], [1, 0]]
    close(result.node[0, :, 5:8], [[1 / (5 + 1e-6), 2.5, 1]] * 2, 1e-6)
    assert result.graph[0, :13].tolist() == [2, 1, 0.5, 11.5, 102, 10, 100, 13, 104, 3, 4, 12, 0]
    result = observe(full, colonies_of(full.rules, [(10.0, 100.0)] * 5), 9)
    assert result.node[0, :5, 5:8].tolist() == [[1, 0, 1]] * 5
    assert result.graph[0, 12] == 0  # the area


@pytest.mark.parametrize(("features", "fewest"), [("light", -1), ("full", 0)])
def test_an_overflow_shows_only_the_first_cells_and_an_extinct_colony_is_finite(features, fewest):
    some_world = world(features=features, n0_min=80, n0_max=80)
    before = wandering(some_world, 5, 0)
    after = advance(some_world, before, torch.tensor([[0.1, 9.0, 0.5, 0.3, 0.2]] * 5)).after
    assert after.n.tolist() == [144] * 5
    result = observe(some_world, after, 100)
    cropped = observe(some_world, after._replace(n=torch.full((5,), 100)), 100)
    assert result.mask.all()
    assert torch.equal(result.node, cropped.node)
    assert torch.equal(result.graph, cropped.graph)
    result = observe(some_world, colonies_of(some_world.rules, [], [(1.0, 2.0), (3.0, 4.0)]), 2)
    assert result.graph.isfinite().all()
    assert (result.node[0] == 0).all()
    assert result.graph[0, 0] == fewest
