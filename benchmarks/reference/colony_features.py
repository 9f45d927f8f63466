"""state of the plain colony -> what a policy sees, cell by cell: `light` and `full` features."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from benchmarks.reference.colony import State


class Observation(NamedTuple):
    """Holds features of each cell, and features of the colony."""

    node: list[list[float]]
    graph: list[float]


class Hull(NamedTuple):
    """Indices of the vertices, and the area within."""

    vertices: set[int]
    area: float


def hull(points: Sequence[tuple[float, float]]) -> Hull:
    """Computes the convex hull: all of up to two cells, or the two ends of collinear cells."""
    if len(points) < 3:
        return Hull(set(range(len(points))), 0.0)
    try:
        result = ConvexHull(np.array(points))
    except QhullError:
        order = sorted(range(len(points)), key=lambda index: points[index])
        return Hull({order[0], order[-1]}, 0.0)
    return Hull({int(index) for index in result.vertices}, float(result.volume))


def light(state: State, rules: Any, left: int) -> Observation:
    """Computes features scaled by hand, without pairs of cells. There must be cells."""
    children = _children(state)
    (x_mean, y_mean), size, target = state.centroid, state.size, rules.target_nodes
    node = []
    for index in range(size):
        x, y, intensity = state.x[index], state.y[index], state.intensity[index]
        row = [x / rules.width, 2 * y / rules.height - 1, intensity / (1 + intensity)]
        row += [float(state.parent[index] >= 0), children[index] / 4]
        row += [(x - x_mean) / 100, (y - y_mean) / 100, min(state.age[index] / 20, 2.0)]
        node.append(row)
    graph = [size / target - 1, math.log(size / target), target / size - 1]
    graph += [2 * x_mean / rules.width - 1, 2 * y_mean / rules.height - 1]
    graph.append((max(state.x) - min(state.x)) / 100)
    graph.append(sum(each / (1 + each) for each in state.intensity) / size)
    graph.append(sum(math.log(max(each, 1e-6)) for each in state.intensity) / size / 3)
    graph += [2 * max(state.x) / rules.width - 1, left / rules.left_limit]
    return Observation(node, graph)


def full(state: State) -> Observation:
    """Computes the original's raw features: degrees, centralities, hull. There must be cells."""
    children, points = _children(state), list(zip(state.x, state.y, strict=True))
    outline, centroid = hull(points), state.centroid
    node = []
    for index, (x, y) in enumerate(points):
        parents = 1.0 if state.parent[index] >= 0 else 0.0
        row = [x, y, state.intensity[index], parents, float(children[index])]
        row += [_centrality(points, index), math.dist((x, y), centroid)]
        row += [float(index in outline.vertices), float(state.new[index])]
        node.append([*row, state.age[index] / 100, state.age[index] / 50])
    return Observation(node, _whole(state, children, outline))


def _whole(state: State, children: list[int], outline: Hull) -> list[float]:
    """Sizes, extents and averages."""
    size = state.size
    edges = sum(1 for parent in state.parent if parent >= 0)
    low, high = (min(state.x), min(state.y)), (max(state.x), max(state.y))
    wide, tall = high[0] - low[0], high[1] - low[1]
    degrees = [1 if parent >= 0 else 0 for parent in state.parent] + children
    graph = [float(size), float(edges), edges / max(1, size * (size - 1))]
    graph += [*state.centroid, *low, *high]
    graph += [wide, tall, wide * tall, outline.area]
    graph += [sum(degrees) / len(degrees), float(max(degrees)), float(sum(degrees))]
    return [*graph, state.mean_intensity, max(state.intensity), sum(state.intensity)]


def _children(state: State) -> list[int]:
    return [state.parent.count(index) for index in range(state.size)]


def _centrality(points: Sequence[tuple[float, float]], index: int) -> float:
    """The nearer the others, the higher; cells at the same place do not count."""
    apart = [math.dist(points[index], other) for other in points]
    apart = [each for each in apart if each > 1e-6]
    return 1 / (sum(apart) / len(apart) + 1e-6) if apart else 1.0
