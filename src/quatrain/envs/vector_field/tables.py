"""a user's table, or random numbers -> velocities at the nodes of a grid, interpolated bilinearly
between nodes.

Nodes have the layout of grid_sample, [1, component, node of x2, node of x1]: its coordinates are
(x1, x2), while the last axis of its input is x1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor
from torch.nn.functional import grid_sample

from quatrain.envs.vector_field.kinds import FieldError, Table

# Random tables cover [-BOX, BOX] in both directions.
BOX = 2.0
JITTER = 1e-6
# Largest difference between two steps of an axis, relative to their mean; float32 rounds steps.
EVENNESS = 1e-3
SHORTEST = 1e-8

Nodes = Float[Tensor, "one component x2 x1"]
# The first and the last node of each axis.
Ends = Float[Tensor, "2 axis"]


def gaussian_process(
    s: Float64[Tensor, " node"],
    length: float,
    variance: float,
    generator: Generator,
) -> Float64[Tensor, "2 node node"]:
    """Draws two independent functions with covariance variance exp(-|x - x'|² / (2 length²)) at the
    nodes (s_i, s_j).

    The kernel is a product over the axes, so the Cholesky factor A of one axis serves both: A Z Aᵀ.
    """
    factor = torch.linalg.cholesky(
        torch.exp(-(s[:, None] - s).square() / (2 * length**2))
        + JITTER * torch.eye(len(s), dtype=s.dtype)
    )
    white = torch.randn(2, len(s), len(s), generator=generator, dtype=s.dtype)
    return variance**0.5 * factor @ white @ factor.T


def multi_attractor(
    generator: Generator,
    *,
    nodes: float,
    length: float,
    variance: float,
    speed: float,
    w_attractor: float,
) -> Nodes:
    """Draws velocities of constant norm and smooth random direction, and adds - w |x| x, towards
    the middle.
    """
    s = torch.linspace(-BOX, BOX, int(nodes), dtype=torch.float64)
    arrows = gaussian_process(s, length, variance, generator)
    x2, x1 = torch.meshgrid(s, s, indexing="ij")
    x = torch.stack([x1, x2])
    unit = arrows / arrows.norm(dim=0).clamp(min=SHORTEST)
    return (speed * unit - w_attractor * x.norm(dim=0) * x)[None].float()


def table_nodes(table: Table, region_radius: float) -> Nodes:
    """Returns a user's table in the layout of grid_sample.

    Raises:
        FieldError: not two axes; an axis is not evenly spaced or does not span the region; vectors
            have the wrong shape or are not finite.
    """
    if len(table.axes) != 2:
        raise FieldError(
            f"{table.name} has {len(table.axes)} axes, expected axis_0 and axis_1: "
            "fields have 2 dimensions."
        )
    for number, axis in enumerate(table.axes):
        _check_axis(f"{table.name} axis_{number}", axis)
    for axis in table.axes:
        _check_span(table.name, axis, region_radius)
    return torch.tensor(_checked_vectors(table).transpose(2, 1, 0)[None], dtype=torch.float32)


def axis_ends(axes: Sequence[Sequence[float]]) -> Ends:
    return torch.tensor([(axis[0], axis[-1]) for axis in axes], dtype=torch.float32).T


def interpolate(
    x: Float[Tensor, "*batch 2"],
    nodes: Nodes,
    ends: Ends,
) -> Float[Tensor, "*batch 2"]:
    """Interpolates velocities at x; outside the table, those of its border."""
    low, high = ends.to(x.dtype)
    position = (2 * x - (low + high)) / (high - low)
    velocity = grid_sample(
        nodes.to(x.dtype),
        position.reshape(1, 1, -1, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    return velocity[0, :, 0].T.reshape(x.shape)


def _check_axis(name: str, axis: Sequence[Any]) -> None:
    nodes = np.asarray(axis, np.float64)
    if nodes.ndim != 1 or len(nodes) < 2:
        raise FieldError(
            f"{name} has shape {nodes.shape}, expected (n,) with n at least 2: give a grid.",
        )
    steps = np.diff(nodes)
    if not (steps > 0).all():
        place = int((~(steps > 0)).argmax())
        raise FieldError(
            f"{name} is not increasing ({axis[place]:g}, then {axis[place + 1]:g}): sort the grid.",
        )
    if np.ptp(steps) > EVENNESS * steps.mean():
        sizes = f"steps {steps.min():.4g} to {steps.max():.4g}"
        raise FieldError(
            f"{name} is not evenly spaced ({sizes}): resample the field on a regular grid."
        )


def _check_span(name: str, axis: Sequence[float], radius: float) -> None:
    slack = 1e-6 * radius
    if axis[0] > slack - radius or axis[-1] < radius - slack:
        raise FieldError(
            f"{name} covers [{axis[0]:g}, {axis[-1]:g}], "
            f"the evaluation region needs [{-radius:g}, {radius:g}]: "
            "widen the grid or lower active_dynamics.env.region_radius."
        )


def _checked_vectors(table: Table) -> np.ndarray:
    vectors = np.asarray(table.vectors, np.float64)
    expected = (*map(len, table.axes), 2)
    if vectors.shape != expected:
        raise FieldError(
            f"{table.name} vectors has shape {vectors.shape}, expected {expected}: "
            "one 2-vector per grid node."
        )
    faulty = ~np.isfinite(vectors).all(2)
    if faulty.any():
        node = tuple(int(place) for place in np.argwhere(faulty)[0])
        raise FieldError(
            f"{table.name} vectors is not finite at node {node}: give a finite vector at each node."
        )
    return vectors
