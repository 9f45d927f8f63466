"""Corners and areas of convex hulls equal scipy's, wherever cells lie."""

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull

from quatrain.envs.colony.hull import area, hull_vertices

NOTICED = 1e-3
"""Pixels; a cell closer to an edge may count as a corner or not."""


def decided(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which points are surely corners, and which are surely none."""
    hull = ConvexHull(points)
    loop = hull.vertices
    before, after = points[np.roll(loop, 1)], points[np.roll(loop, -1)]
    (ax, ay), (bx, by) = (points[loop] - before).T, (after - before).T
    height = np.abs(ax * by - ay * bx) / np.hypot(bx, by)
    sharp = np.zeros(len(points), bool)
    sharp[loop] = height > NOTICED
    inside = (points @ hull.equations[:, :2].T + hull.equations[:, 2]).max(1) < -NOTICED
    return sharp, inside


def shapes(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Returns a cloud, a ring, a thin strip, an outlier and a tight cluster."""
    angle = rng.uniform(0, 2 * np.pi, n)
    return [
        rng.uniform((0, 0), (600, 400), (n, 2)),
        np.stack([300 + 150 * np.cos(angle), 200 + 150 * np.sin(angle)], 1),
        np.stack([rng.uniform(0, 600, n), rng.uniform(200, 200.5, n)], 1),
        np.concatenate([rng.uniform(0, 60, (n - 1, 2)), [[594.0, 396.0]]]),
        rng.normal((500, 300), 0.3, (n, 2)),
    ]


@pytest.mark.parametrize("n", [3, 4, 5, 11, 37, 100])
def test_corners_are_those_of_scipy(n: int):
    rng = np.random.default_rng(n)
    points = np.concatenate([shapes(rng, n) for _ in range(40)]).astype(np.float32)
    result = hull_vertices(
        torch.tensor(points), torch.ones(points.shape[:2], dtype=torch.bool)
    ).numpy()
    sharp, inside = map(
        np.array, zip(*(decided(single.astype(np.float64)) for single in points), strict=True)
    )
    assert result[sharp].all()
    assert not result[inside].any()
    assert (sharp | inside).mean() > 0.97


def test_cells_that_do_not_exist_are_no_corners_and_change_none():
    rng = np.random.default_rng(0)
    points = torch.tensor(rng.uniform(0, 400, (300, 23, 2)), dtype=torch.float32)
    exists = torch.tensor(rng.random((300, 23)) < 0.6)
    result = hull_vertices(points, exists)
    for some, there, corner in zip(points, exists, result, strict=True):
        alone = hull_vertices(some[there][None], torch.ones(1, int(there.sum()), dtype=torch.bool))[
            0
        ]
        assert torch.equal(corner[there], alone)
        assert not corner[~there].any()


def corners_of(*points: tuple[float, float]) -> list[bool]:
    return hull_vertices(torch.tensor([points]), torch.ones(1, len(points), dtype=torch.bool))[
        0
    ].tolist()


def test_one_cell_two_cells_and_cells_in_one_point_are_all_corners():
    assert corners_of((3.0, 200.0)) == [True]
    assert corners_of((3.0, 200.0), (77.7, 31.1)) == [True, True]
    assert corners_of((3.0, 200.0), (77.7, 200.0)) == [True, True]
    assert corners_of(*[(123.4, 56.7)] * 7) == [True] * 7


def test_all_cells_in_one_corner_are_corners():
    assert corners_of((0.0, 0.0), (0.0, 0.0), (10.0, 0.0), (3.0, 9.0)) == [True] * 4


def test_a_cell_in_the_centroid_is_no_corner():
    assert corners_of((0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0), (1.0, 1.0)) == [True] * 4 + [
        False
    ]


@pytest.mark.parametrize("turn", range(8))
def test_the_ends_of_a_line_are_corners(turn: int):
    angle = turn * torch.pi / 4
    along = torch.tensor([-7.0, -2.0, 1.0, 4.0, 11.0])[:, None] * torch.tensor(
        [np.cos(angle), np.sin(angle)]
    )
    result = corners_of(*(200 + along.to(torch.float32)).tolist())
    assert result[0]
    assert result[-1]


def test_area_is_that_of_the_corners_alone():
    x, y = torch.tensor([[-2.0, 2.0, 0.5, 2.0, -2.0]]), torch.tensor([[-1.0, -1.0, 0.3, 1.0, 1.0]])
    assert area(x, y, torch.tensor([[True, True, False, True, True]])).item() == 8
    assert area(x, y, torch.tensor([[True, True, False, True, False]])).item() == 4
    assert area(x, y, torch.zeros(1, 5, dtype=torch.bool)).item() == 0
