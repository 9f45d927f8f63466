"""Corners of convex hulls equal scipy's, wherever cells lie, but where rounding may decide."""

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull

from quatrain.envs.colony.hull import hull_vertices

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


def corners_of(points: torch.Tensor) -> torch.Tensor:
    return hull_vertices(points, torch.ones(points.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize("n", [3, 5, 37, 100])
def test_corners_are_those_of_scipy(n: int):
    rng = np.random.default_rng(n)
    points = torch.tensor(np.concatenate([shapes(rng, n) for _ in range(20)]), dtype=torch.float32)
    result = corners_of(points).numpy()
    expected = (decided(single) for single in points.double().numpy())
    sharp, inside = map(np.array, zip(*expected, strict=True))
    assert result[sharp].all()
    assert not result[inside].any()
    assert (sharp | inside).mean() > 0.97


def test_the_ends_of_a_line_are_corners():
    along = torch.tensor([-7.0, -2.0, 1.0, 4.0, 11.0])[:, None]
    angle = torch.arange(8)[:, None, None] * torch.pi / 4
    points = 200 + along * torch.cat([angle.cos(), angle.sin()], 2)
    assert corners_of(points)[:, [0, -1]].all()
