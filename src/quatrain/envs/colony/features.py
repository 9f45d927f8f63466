"""Colonies -> what a policy sees of them. Time is left out: an episode that runs out of it is bootstrapped."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from quatrain.envs.colony import hull
from quatrain.envs.colony.dynamics import Colonies, World, intensity_at
from quatrain.envs.colony.rules import Rules

NODE_INTENSITIES: dict[str, tuple[int, ...]] = {"light": (), "full": (2,)}
GRAPH_INTENSITIES: dict[str, tuple[int, ...]] = {"light": (), "full": (16, 17, 18)}
"""Columns that hold intensities: exponential plates reach 1e13, so that a network wants their log1p."""
NEAR = 1e-6
"""Pixels; cells that are not farther apart stand in one place."""


class Observation(NamedTuple):
    """Of some colonies. node, graph: the features of each cell and of each colony. parent: slot of a cell's parent,
    -1 without one. mask: where a cell is; elsewhere node holds zeros and parent -1.
    """

    node: Float[Tensor, "colonies cells node_features"]
    graph: Float[Tensor, "colonies graph_features"]
    parent: Int64[Tensor, "colonies cells"]
    mask: Bool[Tensor, "colonies cells"]


class _Seen(NamedTuple):
    """The cells in sight. mask, present: where one is. n: how many, and size the same but at least 1."""

    x: Float[Tensor, "colonies cells"]
    y: Float[Tensor, "colonies cells"]
    mask: Bool[Tensor, "colonies cells"]
    present: Float[Tensor, "colonies cells"]
    has_parent: Float[Tensor, "colonies cells"]
    children: Float[Tensor, "colonies cells"]
    intensity: Float[Tensor, "colonies cells"]
    n: Float[Tensor, " colonies"]
    size: Float[Tensor, " colonies"]
    cx: Float[Tensor, " colonies"]
    cy: Float[Tensor, " colonies"]


class _Pairs(NamedTuple):
    """What takes all pairs of cells. corner: of the hull."""

    centrality: Float[Tensor, "colonies cells"]
    corner: Bool[Tensor, "colonies cells"]


def observe(world: World, colonies: Colonies, cells: int) -> Observation:
    """What is seen of the first `cells` slots, at least one and as many as the largest colony has.

    After an overflow the cells beyond the slots are not seen, and not counted.
    """
    mask = torch.arange(cells, device=colonies.n.device) < colonies.n[:, None]
    seen = _seen(world, colonies, mask)
    light = world.rules.features == "light"
    node, graph = _light(world.rules, colonies, seen) if light else _full(colonies, seen)
    return Observation(
        node=torch.stack(node, 2).mul_(seen.present[..., None]),
        graph=torch.stack(graph, 1),
        parent=colonies.parent[:, :cells],
        mask=mask,
    )


def _seen(world: World, colonies: Colonies, mask: Bool[Tensor, "colonies cells"]) -> _Seen:
    cells = mask.shape[1]
    x, y = colonies.pos[:, :cells].permute(2, 0, 1).contiguous()
    parent = colonies.parent[:, :cells]
    has_parent = (parent >= 0).float()
    n = colonies.n.clamp(max=cells).float()
    size = n.clamp(min=1)
    return _Seen(
        x=x,
        y=y,
        mask=mask,
        present=mask.float(),
        has_parent=has_parent,
        children=torch.zeros_like(has_parent).scatter_add_(1, parent.clamp(min=0), has_parent),
        intensity=intensity_at(world, x, colonies.substrate),
        n=n,
        size=size,
        cx=x.sum(1) / size,
        cy=y.sum(1) / size,
    )


def _light(rules: Rules, colonies: Colonies, seen: _Seen) -> tuple[list[Tensor], list[Tensor]]:
    """Features of order 1, found in time proportional to the cells."""
    x, y = seen.x, seen.y
    soft = seen.intensity / (1 + seen.intensity)
    node = [
        x / rules.width,
        y * (2 / rules.height) - 1,
        soft,
        seen.has_parent,
        seen.children / 4,
        (x - seen.cx[:, None]) / 100,
        (y - seen.cy[:, None]) / 100,
        (colonies.age[:, : x.shape[1]] / 20).clamp(max=2),
    ]
    share, right = seen.size / rules.target_nodes, x.amax(1)
    graph = [
        seen.n / rules.target_nodes - 1,
        share.log(),
        1 / share - 1,
        seen.cx * (2 / rules.width) - 1,
        seen.cy * (2 / rules.height) - 1,
        (right - _lowest(x, seen)) / 100,
        _total(soft, seen) / seen.size,
        _total(seen.intensity.clamp(min=1e-6).log(), seen) / (3 * seen.size),
        right * (2 / rules.width) - 1,
        colonies.left / rules.left_limit,
    ]
    return node, graph


def _full(colonies: Colonies, seen: _Seen) -> tuple[list[Tensor], list[Tensor]]:
    """The original's features, as they are, found in time proportional to pairs of cells."""
    cells = seen.x.shape[1]
    x, y = (seen.x - seen.cx[:, None]) * seen.present, (seen.y - seen.cy[:, None]) * seen.present
    centrality, corner = _of_pairs(x, y, seen)
    age = colonies.age[:, :cells]
    node = [
        seen.x,
        seen.y,
        seen.intensity,
        seen.has_parent,
        seen.children,
        centrality,
        (x * x).addcmul_(y, y).sqrt_(),
        corner.float(),
        colonies.new[:, :cells].float(),
        age / 100,
        age / 50,
    ]
    return node, [*_shape(seen), hull.area(x, y, corner), *_sums(seen)]


def _shape(seen: _Seen) -> list[Tensor]:
    """How many cells and edges there are, and where."""
    edges = seen.has_parent.sum(1)
    left, right = _lowest(seen.x, seen), seen.x.amax(1)
    low, high = _lowest(seen.y, seen), seen.y.amax(1)
    width, height = right - left, high - low
    density = edges / (seen.n * (seen.n - 1)).clamp(min=1)
    return [
        seen.n,
        edges,
        density,
        seen.cx,
        seen.cy,
        left,
        low,
        right,
        high,
        width,
        height,
        width * height,
    ]


def _sums(seen: _Seen) -> list[Tensor]:
    """Mean, largest and sum of all in- and out-degrees, and of all intensities."""
    edges, intensity = seen.has_parent.sum(1), seen.intensity * seen.present
    degree, total = torch.maximum(seen.has_parent, seen.children).amax(1), intensity.sum(1)
    return [edges / seen.size, degree, 2 * edges, total / seen.size, intensity.amax(1), total]


def _of_pairs(x: Tensor, y: Tensor, seen: _Seen) -> _Pairs:
    parts = [_of_block(*block) for block in hull.blocks(x, y, seen.present)]
    centrality, corner = (torch.cat(each) for each in zip(*parts, strict=True))
    return _Pairs(centrality, corner & seen.mask)


def _of_block(x: Tensor, y: Tensor, present: Tensor) -> _Pairs:
    dx, dy = hull.differences(x, y)
    return _Pairs(_centrality(dx, dy, present), hull.corners(x, y, dx, dy))


def _centrality(
    dx: Float[Tensor, "colonies cells cells"],
    dy: Float[Tensor, "colonies cells cells"],
    present: Float[Tensor, "colonies cells"],
) -> Float[Tensor, "colonies cells"]:
    """1 / the mean distance to cells elsewhere; 1 if there are none."""
    distance = torch.threshold_((dx * dx).addcmul_(dy, dy).sqrt_(), NEAR, 0.0)
    total = torch.bmm(present[:, None], distance)[:, 0]  # distances are symmetric
    count = torch.bmm(present[:, None], distance.sign_())[:, 0]
    return torch.where(count > 0, 1 / (total / count.clamp(min=1) + NEAR), 1.0)


def _lowest(of_cell: Tensor, seen: _Seen) -> Float[Tensor, " colonies"]:
    """The smallest value; 0 without cells."""
    return torch.where(seen.mask, of_cell, of_cell.amax(1, keepdim=True)).amin(1)


def _total(of_cell: Tensor, seen: _Seen) -> Float[Tensor, " colonies"]:
    return torch.linalg.vecdot(of_cell, seen.present)
