"""Corners of convex hulls by scipy, but for those that rounding may decide."""

import numpy as np
from scipy.spatial import ConvexHull

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
