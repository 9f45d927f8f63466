"""What is seen of colonies equals what one would find cell by cell."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull

from quatrain.envs.colony.dynamics import Colonies, World, advance
from quatrain.envs.colony.features import GRAPH_INTENSITIES, NODE_INTENSITIES, Observation, observe
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from tests.colonies import all_kinds, colonies_of, wandering, world
from tests.envs.colony.test_hull import decided

AMONG = [0, 1, 4, 15, 40]
"""Steps after which colonies are looked at."""
CORNER, AREA = 7, 12
"""Columns of the full features that are judged apart."""


class Cell:
    """Holds a cell as a plain object."""

    def __init__(self, some_world: World, colonies: Colonies, row: int, slot: int) -> None:
        self.slot, self.parent = slot, int(colonies.parent[row, slot])
        self.x, self.y = colonies.pos[row, slot].tolist()
        self.age, self.new = float(colonies.age[row, slot]), float(colonies.new[row, slot])
        pixel = math.floor(min(max(self.x, 0), some_world.rules.width - 1))
        self.intensity = float(some_world.intensity[int(colonies.substrate[row]), pixel])
        self.children = 0


def cells_of(some_world: World, colonies: Colonies, row: int) -> list[Cell]:
    slots = min(int(colonies.n[row]), colonies.parent.shape[1])
    cells = [Cell(some_world, colonies, row, slot) for slot in range(slots)]
    for cell in cells:
        if cell.parent >= 0:
            cells[cell.parent].children += 1
    return cells


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def light_node(cell: Cell, cells: list[Cell]) -> list[float]:
    cx, cy = mean([other.x for other in cells]), mean([other.y for other in cells])
    soft, has_parent = cell.intensity / (1 + cell.intensity), float(cell.parent >= 0)
    place = [cell.x / 600, 2 * cell.y / 400 - 1, soft, has_parent, cell.children / 4]
    return [*place, (cell.x - cx) / 100, (cell.y - cy) / 100, min(cell.age / 20, 2)]


def light_graph(cells: list[Cell], left: int) -> list[float]:
    n, xs = len(cells), [cell.x for cell in cells]
    size = [n / 40 - 1, math.log(n / 40), 40 / n - 1]
    place = [
        2 * mean(xs) / 600 - 1,
        2 * mean([cell.y for cell in cells]) / 400 - 1,
        (max(xs) - min(xs)) / 100,
    ]
    soft = mean([cell.intensity / (1 + cell.intensity) for cell in cells])
    stiffness = mean([math.log(max(cell.intensity, 1e-6)) for cell in cells]) / 3
    return [*size, *place, soft, stiffness, 2 * max(xs) / 600 - 1, left / 30]


def full_node(cell: Cell, cells: list[Cell]) -> list[float]:
    cx, cy = mean([other.x for other in cells]), mean([other.y for other in cells])
    away = [math.dist((cell.x, cell.y), (other.x, other.y)) for other in cells]
    away = [distance for distance in away if distance > 1e-6]
    centrality = 1 / (mean(away) + 1e-6) if away else 1.0
    degrees = [float(cell.parent >= 0), cell.children]
    here = [
        cell.x,
        cell.y,
        cell.intensity,
        *degrees,
        centrality,
        math.dist((cell.x, cell.y), (cx, cy)),
    ]
    return [*here, math.nan, cell.new, cell.age / 100, cell.age / 50]


def full_graph(cells: list[Cell]) -> list[float]:
    n, xs, ys = len(cells), [cell.x for cell in cells], [cell.y for cell in cells]
    degrees = [degree for cell in cells for degree in (cell.children, int(cell.parent >= 0))]
    edges, stiffness = sum(cell.children for cell in cells), [cell.intensity for cell in cells]
    width, height = max(xs) - min(xs), max(ys) - min(ys)
    size = [n, edges, edges / max(1, n * (n - 1)), mean(xs), mean(ys)]
    box = [min(xs), min(ys), max(xs), max(ys), width, height, width * height]
    hull = [ConvexHull([(cell.x, cell.y) for cell in cells]).volume if n > 2 else 0.0]
    return [
        *size,
        *box,
        *hull,
        mean(degrees),
        max(degrees),
        sum(degrees),
        mean(stiffness),
        max(stiffness),
        sum(stiffness),
    ]


def observed(some_world: World, colonies: Colonies, spare: int = 0) -> Observation:
    return observe(
        some_world, colonies, min(int(colonies.n.max()) + spare, colonies.parent.shape[1])
    )


def close(result: torch.Tensor, expected: list[float], tolerance: float) -> None:
    """Asserts closeness relative to the size of each number, at least 1."""
    scale = np.maximum(np.abs(expected), 1)
    np.testing.assert_allclose(
        result.numpy() / scale, np.array(expected) / scale, rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("steps", AMONG)
def test_light_features_are_those_of_a_plain_loop(steps: int):
    some_world = world()
    colonies = wandering(some_world, 30, steps, seed=steps)
    result = observed(some_world, colonies)
    for row in range(30):
        cells = cells_of(some_world, colonies, row)
        for cell in cells:
            close(result.node[row, cell.slot], light_node(cell, cells), 2e-6)
        close(result.graph[row], light_graph(cells, int(colonies.left[row])), 2e-6)


@pytest.mark.parametrize("steps", AMONG)
def test_full_features_are_those_of_a_plain_loop(steps: int):
    some_world = world(features="full")
    colonies = wandering(some_world, 60, steps, seed=100 + steps)
    result, others = (
        observed(some_world, colonies),
        [column for column in range(11) if column != CORNER],
    )
    for row in range(60):
        cells = cells_of(some_world, colonies, row)
        for cell in cells:
            expected = full_node(cell, cells)
            close(
                result.node[row, cell.slot][others], [expected[column] for column in others], 5e-5
            )
            assert result.node[row, cell.slot, 5].item() == pytest.approx(
                expected[5], rel=1e-5
            )  # a small number
        close(result.graph[row], full_graph(cells), 2e-5)


@pytest.mark.parametrize("steps", AMONG)
def test_corners_of_the_hull_are_those_of_scipy(steps: int):
    some_world = world(features="full")
    colonies = wandering(some_world, 60, steps, seed=200 + steps)
    result = observed(some_world, colonies).node[..., CORNER] == 1
    undecided = 0
    for row, n in enumerate(colonies.n.tolist()):
        sharp, inside = decided(colonies.pos[row, :n].numpy().astype(np.float64))
        assert result[row, :n][sharp].all()
        assert not result[row, :n][inside].any()
        undecided += n - int(sharp.sum() + inside.sum())
    assert undecided < 0.02 * colonies.n.sum()


@pytest.mark.parametrize("features", ["light", "full"])
def test_shapes_are_as_announced_and_padding_holds_zeros(features: str):
    some_world = world(features=features)
    colonies = wandering(some_world, 6, 3)
    result = observed(some_world, colonies, spare=7)
    cells = int(colonies.n.max()) + 7
    assert result.node.shape == (6, cells, NODE_FEATURES[features])
    assert result.graph.shape == (6, GRAPH_FEATURES[features])
    assert torch.equal(result.mask, torch.arange(cells) < colonies.n[:, None])
    assert (result.node[~result.mask] == 0).all()
    assert (result.parent[~result.mask] == -1).all()
    assert torch.equal(result.parent, colonies.parent[:, :cells])


@pytest.mark.parametrize("features", ["light", "full"])
def test_padding_changes_nothing(features: str):
    some_world = world(features=features)
    colonies = wandering(some_world, 20, 9)
    little, much = observed(some_world, colonies), observed(some_world, colonies, spare=50)
    same(little.node, much.node[:, : little.node.shape[1]])
    same(little.graph, much.graph)


@pytest.mark.parametrize("features", ["light", "full"])
def test_the_order_of_cells_changes_nothing_but_their_order(features: str):
    some_world = world(features=features)
    colonies = wandering(some_world, 20, 9)
    order = torch.stack([shuffled(n, colonies.parent.shape[1]) for n in colonies.n.tolist()])
    place = order.argsort(1)
    parent = colonies.parent.gather(1, order)
    other = colonies._replace(
        pos=colonies.pos.gather(1, order[..., None].expand(-1, -1, 2)),
        parent=torch.where(parent >= 0, place.gather(1, parent.clamp(min=0)), -1),
        age=colonies.age.gather(1, order),
        new=colonies.new.gather(1, order),
    )
    single, two = observe(some_world, colonies, 100), observe(some_world, other, 100)
    same(single.node.gather(1, order[..., None].expand(-1, -1, single.node.shape[2])), two.node)
    same(single.graph, two.graph)


def shuffled(n: int, slots: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.cat([torch.randperm(n, generator=generator), torch.arange(n, slots)])


def same(single: torch.Tensor, two: torch.Tensor) -> None:
    """Asserts equality up to a millionth of the largest number of a column."""
    largest = single.flatten(0, -2).abs().amax(0).clamp(min=1)
    assert ((single - two).abs() / largest).max() < 1e-6


def test_one_cell():
    light, full = world(), world(features="full")
    alone = colonies_of(light.rules, [(30.0, 100.0)])
    close(observe(light, alone, 4).node[0, 0], [0.05, -0.5, 2.5 / 3.5, 0, 0, 0, 0, 0], 1e-6)
    stiffness = [2.5 / 3.5, math.log(2.5) / 3]
    graph = [1 / 40 - 1, math.log(1 / 40), 39, -0.9, -0.5, 0, *stiffness, -0.9, 0]
    close(observe(light, alone, 4).graph[0], graph, 1e-6)
    assert observe(full, alone, 4).node[0, 0].tolist() == [30, 100, 2.5, 0, 0, 1, 0, 1, 0, 0, 0]
    box = [30, 100, 30, 100, 0, 0, 0]
    assert observe(full, alone, 4).graph[0].tolist() == [
        1,
        0,
        0,
        30,
        100,
        *box,
        0,
        0,
        0,
        0,
        2.5,
        2.5,
        2.5,
    ]


def test_two_cells():
    full = world(features="full")
    result = observe(full, colonies_of(full.rules, [(10.0, 100.0), (13.0, 104.0)]), 2)
    assert result.node[0, :, 3:5].tolist() == [[0, 1], [1, 0]]
    np.testing.assert_allclose(
        result.node[0, :, 5:8].numpy(), [[1 / (5 + 1e-6), 2.5, 1]] * 2, rtol=1e-6
    )
    assert result.graph[0, :13].tolist() == [2, 1, 0.5, 11.5, 102, 10, 100, 13, 104, 3, 4, 12, 0]


def test_cells_in_one_point():
    full = world(features="full")
    result = observe(full, colonies_of(full.rules, [(10.0, 100.0)] * 5), 9)
    assert result.node[0, :5, 5:8].tolist() == [[1, 0, 1]] * 5
    assert result.graph[0, AREA] == 0


@pytest.mark.parametrize("features", ["light", "full"])
def test_an_overflow_observes_and_counts_only_the_first_cells(features: str):
    some_world = world(features=features, n0_min=80, n0_max=80)
    before = wandering(some_world, 5, 0)
    after = advance(some_world, before, torch.tensor([[0.1, 9.0, 0.5, 0.3, 0.2]] * 5)).after
    assert after.n.tolist() == [144] * 5
    result = observe(some_world, after, 100)
    cropped = observe(some_world, after._replace(n=torch.full((5,), 100)), 100)
    assert result.mask.all()
    assert torch.equal(result.node, cropped.node)
    assert torch.equal(result.graph, cropped.graph)
    cells = cells_of(some_world, after, 2)
    expected = light_graph(cells, 0) if features == "light" else full_graph(cells)
    close(result.graph[2], expected, 2e-5)


@pytest.mark.parametrize("features", ["light", "full"])
def test_an_extinct_colony_is_finite(features: str):
    some_world = world(features=features)
    result = observe(some_world, colonies_of(some_world.rules, [], [(1.0, 2.0), (3.0, 4.0)]), 2)
    assert result.graph.isfinite().all()
    assert (result.node[0] == 0).all()
    assert result.graph[0, 0] == (-1 if features == "light" else 0)


def test_columns_of_intensities_are_named():
    some_world = world(all_kinds(), features="full")
    colonies = wandering(some_world, 4, 2)
    softer = world(all_kinds()._replace(intensity=all_kinds().intensity * 3), features="full")
    single, two = observed(some_world, colonies), observed(softer, colonies)
    tripled = [
        column
        for column in range(11)
        if not torch.equal(single.node[..., column], two.node[..., column])
    ]
    of_graph = [
        column
        for column in range(19)
        if not torch.equal(single.graph[:, column], two.graph[:, column])
    ]
    assert (tuple(tripled), tuple(of_graph)) == (
        NODE_INTENSITIES["full"],
        GRAPH_INTENSITIES["full"],
    )
    assert NODE_INTENSITIES["light"] == GRAPH_INTENSITIES["light"] == ()
