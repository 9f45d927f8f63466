"""rules, actions -> one colony, the slow way: a Cell object each, a list sorted by x, loops over
all cells; what a policy sees of it. Tests and benchmarks compare batched colonies with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import ConvexHull, QhullError

RUNNING, SUCCESS, OVERFLOW, EXTINCT, LEFT_DRIFT, TIMEOUT = range(6)
TERMINAL = {SUCCESS: 1.0, OVERFLOW: -1.0, EXTINCT: -1.0, LEFT_DRIFT: -0.5}
GOAL_WEIGHTS = {"progress": 10.0, "growth": 0.25, "metabolic": 0.05}
GOAL_WEIGHTS |= {"lane": 0.4, "time": 0.02, "terminal": 2.0}


class Plate(NamedTuple):
    """Holds the stiffness of the ground by column."""

    table: Sequence[float]

    def intensity(self, x: float, width: int) -> float:
        """Returns the stiffness under x."""
        result = self.table[math.floor(min(max(x, 0.0), width - 1.0))]
        return result if math.isfinite(result) and result > 1e-6 else 1.0


@dataclass(eq=False)
class Cell:
    """Holds a cell, which never moves. parent: what spawned it, or the nearest living ancestor."""

    x: float
    y: float
    parent: "Cell | None"
    pid: int
    new: bool = False
    age: int = 0


class State(NamedTuple):
    """Holds an entry per cell, in the order of ids. parent: index of a cell, or -1."""

    x: list[float]
    y: list[float]
    intensity: list[float]
    parent: list[int]
    pid: list[int]
    age: list[int]
    new: list[bool]

    @property
    def size(self) -> int:
        return len(self.x)

    @property
    def centroid(self) -> tuple[float, float]:
        return sum(self.x) / self.size, sum(self.y) / self.size

    @property
    def mean_intensity(self) -> float:
        return sum(self.intensity) / max(self.size, 1)


class Step(NamedTuple):
    """Holds the inputs of rewards."""

    rules: Any
    before: State
    after: State
    centroid_before: tuple[float, float]
    centroid: tuple[float, float]
    """Where there are no cells left: where it was."""
    gamma: float
    deleted: set[int]
    """Ids."""
    children: list[tuple[float, float, float]]
    """x, y, intensity."""
    t: int
    """Steps so far, with this one."""
    furthest_before: float
    furthest: float
    reason: int


class Colony:
    """Holds one colony on one plate, which is deterministic given its actions."""

    def __init__(self, rules: Any, plate: Plate) -> None:
        self.rules = rules
        self.plate = plate
        self.cells: list[Cell] = []
        self.next_pid = self.t = self.left = 0
        self.furthest = 0.0

    def start(
        self, positions: Sequence[Sequence[float]], parents: Sequence[int] | None = None
    ) -> State:
        """Takes cells in the order of ids. parents: indices, or -1; without them a chain."""
        chain = range(-1, len(positions) - 1)
        self.cells = []
        for pid, ((x, y), parent) in enumerate(
            zip(positions, chain if parents is None else parents, strict=True)
        ):
            self.cells.append(Cell(x, y, self.cells[parent] if parent >= 0 else None, pid))
        self.next_pid = len(self.cells)
        self.t = self.left = 0
        self.furthest = max((cell.x for cell in self.cells), default=0.0)
        return self.state()

    def state(self) -> State:
        index = {cell.pid: place for place, cell in enumerate(self.cells)}
        state = State([], [], [], [], [], [], [])
        for cell in self.cells:
            state.x.append(cell.x)
            state.y.append(cell.y)
            state.intensity.append(self.plate.intensity(cell.x, self.rules.width))
            state.parent.append(-1 if cell.parent is None else index[cell.parent.pid])
            state.pid.append(cell.pid)
            state.age.append(cell.age)
            state.new.append(cell.new)
        return state

    def leftmost(self, delete_ratio: float) -> list[Cell]:
        """Returns the cells to delete; among cells at the same x the older one."""
        count = min(max(math.floor(delete_ratio * len(self.cells) + 1e-4), 0), len(self.cells))
        return sorted(self.cells, key=lambda cell: cell.x)[:count]

    def step(self, action: Sequence[float]) -> Step:
        """Takes one step with the action delete_ratio, gamma, alpha, noise, theta."""
        delete_ratio, gamma, *_ = action
        before, furthest_before = self.state(), self.furthest
        deleted = {cell.pid for cell in self.leftmost(delete_ratio)}
        survivors = [cell for cell in self.cells if cell.pid not in deleted]
        children = [self.child(cell, action) for cell in survivors]
        for cell in survivors:
            while cell.parent is not None and cell.parent.pid in deleted:
                cell.parent = cell.parent.parent
            cell.age += 1
            cell.new = False
        self.cells = survivors + children
        self.t += 1
        self.furthest = max([self.furthest, *(cell.x for cell in self.cells)])
        after = self.state()
        centroid_before = before.centroid
        centroid = after.centroid if after.size else centroid_before
        self.left = self.left + 1 if centroid[0] < centroid_before[0] else 0
        width = self.rules.width
        born = [(cell.x, cell.y, self.plate.intensity(cell.x, width)) for cell in children]
        moved = (centroid_before, centroid, gamma, deleted, born, self.t)
        progress = (furthest_before, self.furthest, self.reason(after))
        return Step(self.rules, before, after, *moved, *progress)

    def child(self, cell: Cell, action: Sequence[float]) -> Cell:
        """Places a child: the stiffer the ground the farther (Hill law), off the edges."""
        _, gamma, alpha, noise, theta = action
        stiffness = self.plate.intensity(cell.x, self.rules.width)
        length = gamma / (1 + (alpha / stiffness) ** 2) + noise
        x = cell.x + length * math.cos(theta)
        y = cell.y + length * math.sin(theta)
        child = Cell(
            inside(x, self.rules.width), inside(y, self.rules.height), cell, self.next_pid, new=True
        )
        self.next_pid += 1
        return child

    def reason(self, after: State) -> int:
        """Returns why the episode ends now, or RUNNING."""
        if after.size > self.rules.max_nodes:
            return OVERFLOW
        if after.size == 0:
            return EXTINCT
        if self.left >= self.rules.left_limit:
            return LEFT_DRIFT
        if max(after.x) >= 0.99 * self.rules.width - 1e-3:
            return SUCCESS
        return TIMEOUT if self.t >= self.rules.max_steps else RUNNING


def inside(coordinate: float, side: int) -> float:
    """Keeps a point off both edges by a hundredth of the side, and at least two pixels."""
    margin = max(2.0, 0.01 * side)
    return min(max(coordinate, margin), side - margin)


def goal_control(step: Step) -> dict[str, float]:
    """Returns the components of the reward of a step: progress to the right at the target size, in
    the middle lane.
    """
    rules, size = step.rules, step.rules.target_nodes
    survivors = step.before.size - len(step.deleted)
    middle = rules.height / 2
    return {
        "progress": (step.centroid[0] - step.centroid_before[0]) / (rules.width - 1),
        "growth": -min(1.0, ((step.after.size - size) / (0.5 * size)) ** 2),
        "metabolic": -((step.gamma / rules.bounds[1].high) ** 2) * survivors / (size / 2),
        "lane": -(((step.centroid[1] - middle) / middle) ** 2),
        "time": -1.0,
        "terminal": TERMINAL.get(step.reason, 0.0),
    }


# What a policy sees, cell by cell.


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
