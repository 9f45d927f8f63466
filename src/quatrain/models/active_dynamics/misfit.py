"""field, visited states -> error and expected error by distance to the data

Features that cannot represent the field err near the data too, where their variance says that they
know it; a lack of data is an error far from it, and is expected there.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64

# Ends of the ranges of distances to the nearest visited state.
EDGES = (0.05, 0.1, 0.2, 0.4, 0.8, np.inf)
NEAR = 0.2


class ByDistance(NamedTuple):
    """Holds root mean squares over grid points by range of distance; NaN where there are none."""

    error: Float64[np.ndarray, "learner range"]
    expected: Float64[np.ndarray, "learner range"]


def nearest_distances(
    path: Float[np.ndarray, "learner transition d"], grid: Float[np.ndarray, "point d"]
) -> Float64[np.ndarray, "learner point"]:
    points = torch.tensor(grid).double()
    rows = [torch.cdist(points, torch.tensor(states).double()).amin(1) for states in path]
    return torch.stack(rows).numpy(force=True)


def by_distance(
    square: Float64[np.ndarray, "learner point"],
    variance: Float64[np.ndarray, "learner point"],
    distance: Float64[np.ndarray, "learner point"],
) -> ByDistance:
    """Averages squared errors of the velocity, and its variance, over ranges of distance."""
    place = np.searchsorted(EDGES, distance)
    columns = []
    for index in range(len(EDGES)):
        inside = place == index
        count = np.where(inside.any(1), inside.sum(1), np.nan)
        columns.append([(values * inside).sum(1) / count for values in (square, variance)])
    error, expected = np.sqrt(np.array(columns)).transpose(1, 2, 0)
    return ByDistance(error, expected)


def near_error(
    square: Float64[np.ndarray, "learner point"],
    variance: Float64[np.ndarray, "learner point"],
    distance: Float64[np.ndarray, "learner point"],
) -> Float64[np.ndarray, " learner"]:
    """Computes error over expected error at grid points within NEAR of the data.

    NaN where there are none, or nothing is expected.
    """
    near = distance <= NEAR
    expected = (variance * near).sum(1)
    return np.sqrt((square * near).sum(1) / np.where(expected > 0, expected, np.nan))
