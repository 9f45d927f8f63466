"""colonies -> what a policy observes. Time is left out: an episode that runs out of it is
bootstrapped.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from quatrain.envs.colony import hull
from quatrain.envs.colony.config import NODE_FEATURES, Env
from quatrain.envs.colony.dynamics import Colonies, World, intensity_at

# Columns of `Observation.node` and of `Observation.graph` that hold intensities.
NODE_INTENSITIES: dict[str, tuple[int, ...]] = {"light": (), "full": (2,)}
GRAPH_INTENSITIES: dict[str, tuple[int, ...]] = {"light": (), "full": (16, 17, 18)}
# Pixels; cells that are not farther apart count as one position.
NEAR = 1e-6


class Observation(NamedTuple):
    """Holds the observation of some colonies.

    node, graph: the features of each cell and of each colony. parent: slot of a cell's parent, -1
    without one. mask: which slots hold a cell; in other slots node is 0 and parent -1.
    """

    node: Float[Tensor, "env cell node_feature"]
    graph: Float[Tensor, "env graph_feature"]
    parent: Int64[Tensor, "env cell"]
    mask: Bool[Tensor, "env cell"]


class _Cells(NamedTuple):
    """Holds the observed cells. mask, present: which slots hold one. n: their number. size: the
    same, at least 1.
    """

    x: Float[Tensor, "env cell"]
    y: Float[Tensor, "env cell"]
    mask: Bool[Tensor, "env cell"]
    present: Float[Tensor, "env cell"]
    intensity: Float[Tensor, "env cell"]
    n: Float[Tensor, " env"]
    size: Float[Tensor, " env"]
    cx: Float[Tensor, " env"]
    cy: Float[Tensor, " env"]


# Columns of `Observation.node` and of `Observation.graph`.
_Features = tuple[list[Tensor], list[Tensor]]


def observe(world: World, colonies: Colonies, cells: int, graph_only: bool = False) -> Observation:
    """Observes the first `cells` slots: at least one, and as many as the largest colony has.

    After an overflow, cells beyond the slots are neither observed nor counted. With `graph_only`
    the other parts have no slots.
    """
    mask = torch.arange(cells, device=colonies.n.device) < colonies.n[:, None]
    observed = _cells(world, colonies, mask)
    if world.rules.features == "full":
        node, graph = _full(colonies, observed)
    elif graph_only:
        node, graph = [], _light_graph(world.rules, colonies, observed)
    else:
        node, graph = _light(world.rules, colonies, observed)
    if graph_only:
        return Observation(
            node=observed.x.new_zeros(len(mask), 0, NODE_FEATURES[world.rules.features]),
            graph=torch.stack(graph, 1),
            parent=colonies.parent[:, :0],
            mask=mask[:, :0],
        )
    return Observation(
        node=torch.stack(node, 2).mul_(observed.present[..., None]),
        graph=torch.stack(graph, 1),
        parent=colonies.parent[:, :cells],
        mask=mask,
    )


def compress_stiffness(rules: Env, observation: Observation) -> Observation:
    """Replaces stiffness I, which reaches 1e13 on exponential plates, by ln(1 + I)."""
    return observation._replace(
        node=_log1p_columns(observation.node, NODE_INTENSITIES[rules.features]),
        graph=_log1p_columns(observation.graph, GRAPH_INTENSITIES[rules.features]),
    )


def _log1p_columns(values: Tensor, columns: Sequence[int]) -> Tensor:
    """Returns a copy with ln(1 + x) in some columns; the tensor itself if there are none."""
    if not columns:
        return values
    index = list(columns)
    result = values.clone()
    result[..., index] = values[..., index].log1p()
    return result


def _cells(world: World, colonies: Colonies, mask: Bool[Tensor, "env cell"]) -> _Cells:
    cells = mask.shape[1]
    x, y = colonies.pos[:, :cells].permute(2, 0, 1).contiguous()
    n = colonies.n.clamp(max=cells).float()
    size = n.clamp(min=1)
    return _Cells(
        x=x,
        y=y,
        mask=mask,
        present=mask.float(),
        intensity=intensity_at(world, x, colonies.substrate),
        n=n,
        size=size,
        cx=x.sum(1) / size,
        cy=y.sum(1) / size,
    )


def _family(colonies: Colonies, slots: int) -> tuple[Tensor, Tensor]:
    """Returns whether each cell has a parent, and the number of its children."""
    parent = colonies.parent[:, :slots]
    has_parent = (parent >= 0).float()
    children = torch.zeros_like(has_parent).scatter_add_(1, parent.clamp(min=0), has_parent)
    return has_parent, children


def _light(rules: Env, colonies: Colonies, cells: _Cells) -> _Features:
    """Computes features of order 1, in time linear in the cells."""
    stiffness = cells.intensity / (1 + cells.intensity)
    has_parent, children = _family(colonies, cells.x.shape[1])
    return (
        [
            cells.x / rules.width,
            cells.y * (2 / rules.height) - 1,
            stiffness,
            has_parent,
            children / 4,
            (cells.x - cells.cx[:, None]) / 100,
            (cells.y - cells.cy[:, None]) / 100,
            (colonies.age[:, : cells.x.shape[1]] / 20).clamp(max=2),
        ],
        _light_graph(rules, colonies, cells),
    )


def _light_graph(rules: Env, colonies: Colonies, cells: _Cells) -> list[Tensor]:
    stiffness = cells.intensity / (1 + cells.intensity)
    share = cells.size / rules.target_nodes
    right = cells.x.amax(1)
    return [
        cells.n / rules.target_nodes - 1,
        share.log(),
        1 / share - 1,
        cells.cx * (2 / rules.width) - 1,
        cells.cy * (2 / rules.height) - 1,
        (right - _lowest(cells.x, cells)) / 100,
        _total(stiffness, cells) / cells.size,
        _total(cells.intensity.clamp(min=1e-6).log(), cells) / (3 * cells.size),
        right * (2 / rules.width) - 1,
        colonies.left / rules.left_limit,
    ]


def _full(colonies: Colonies, cells: _Cells) -> _Features:
    """Computes the original's features, unscaled, in time linear in the pairs of cells."""
    slots = cells.x.shape[1]
    x = (cells.x - cells.cx[:, None]) * cells.present
    y = (cells.y - cells.cy[:, None]) * cells.present
    blocks = [_block(*block) for block in hull.blocks(x, y, cells.present)]
    centrality, corner = (torch.cat(column) for column in zip(*blocks, strict=True))
    corner = corner & cells.mask
    age = colonies.age[:, :slots]
    has_parent, children = _family(colonies, slots)
    return (
        [
            cells.x,
            cells.y,
            cells.intensity,
            has_parent,
            children,
            centrality,
            (x * x).addcmul_(y, y).sqrt_(),
            corner.float(),
            colonies.new[:, :slots].float(),
            age / 100,
            age / 50,
        ],
        [*_shape(cells, has_parent), hull.area(x, y, corner), *_sums(cells, has_parent, children)],
    )


def _shape(cells: _Cells, has_parent: Tensor) -> list[Tensor]:
    edges = has_parent.sum(1)
    left = _lowest(cells.x, cells)
    right = cells.x.amax(1)
    low = _lowest(cells.y, cells)
    high = cells.y.amax(1)
    width = right - left
    height = high - low
    return [
        cells.n,
        edges,
        edges / (cells.n * (cells.n - 1)).clamp(min=1),
        cells.cx,
        cells.cy,
        left,
        low,
        right,
        high,
        width,
        height,
        width * height,
    ]


def _sums(cells: _Cells, has_parent: Tensor, children: Tensor) -> list[Tensor]:
    edges = has_parent.sum(1)
    intensity = cells.intensity * cells.present
    total = intensity.sum(1)
    return [
        edges / cells.size,
        torch.maximum(has_parent, children).amax(1),
        2 * edges,
        total / cells.size,
        intensity.amax(1),
        total,
    ]


def _block(x: Tensor, y: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    to_others = hull.differences(x, y)
    return _centrality(to_others, present), hull.corners(x, y, to_others)


def _centrality(
    to_others: hull.Differences, present: Float[Tensor, "env cell"]
) -> Float[Tensor, "env cell"]:
    """Computes 1 / the mean distance to cells at other positions; 1 if there are none."""
    dx, dy = to_others
    distance = torch.threshold_((dx * dx).addcmul_(dy, dy).sqrt_(), NEAR, 0.0)
    total = torch.bmm(present[:, None], distance)[:, 0]  # distances are symmetric
    count = torch.bmm(present[:, None], distance.sign_())[:, 0]
    return torch.where(count > 0, 1 / (total / count.clamp(min=1) + NEAR), 1.0)


def _lowest(values: Tensor, cells: _Cells) -> Float[Tensor, " env"]:
    """Returns the smallest value; 0 without cells."""
    return torch.where(cells.mask, values, values.amax(1, keepdim=True)).amin(1)


def _total(values: Tensor, cells: _Cells) -> Float[Tensor, " env"]:
    return torch.linalg.vecdot(values, cells.present)
