"""a user's table, or random numbers -> velocities at the nodes of a grid; and between the nodes, bilinearly.

Nodes are kept as grid_sample wants them, [1, component, node of x2, node of x1]: its coordinates are (x1, x2), while
the last axis of what it samples is x1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor
from torch.nn.functional import grid_sample

from quatrain.envs.vector_field.kinds import FieldError, Table

BOX = 2.0
"""Drawn tables cover [-BOX, BOX] in both directions."""
JITTER = 1e-6
EVENNESS = 1e-3
"""Largest difference between two steps of an axis, as a share of their mean; float32 has no exact steps."""
SHORTEST = 1e-8

Nodes = Float[Tensor, "one component x2 x1"]
Ends = Float[Tensor, "2 axis"]
"""First and last node of each axis."""


def gaussian_process(
    s: Float64[Tensor, " node"], length: float, variance: float, generator: Generator
) -> Float64[Tensor, "2 node node"]:
    """Two independent draws with covariance variance exp(-|x - x'|² / (2 length²)) at the nodes (s_i, s_j).

    The kernel is a product over the axes, so that the factor of one axis serves both: A Z Aᵀ.
    """
    kernel = torch.exp(-(s[:, None] - s).square() / (2 * length**2))
    factor = torch.linalg.cholesky(kernel + JITTER * torch.eye(len(s), dtype=s.dtype))
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
    """Arrows of one length, whose directions are a smooth random draw, and a pull to the middle: - w |x| x."""
    s = torch.linspace(-BOX, BOX, int(nodes), dtype=torch.float64)
    arrows = gaussian_process(s, length, variance, generator)
    x2, x1 = torch.meshgrid(s, s, indexing="ij")
    x = torch.stack([x1, x2])
    unit = arrows / arrows.norm(dim=0).clamp(min=SHORTEST)
    return (speed * unit - w_attractor * x.norm(dim=0) * x)[None].float()


def table_nodes(table: Table, region_radius: float) -> Nodes:
    """A user's table in grid_sample's order.

    Raises:
        FieldError: not two axes, an axis that is not an even grid or does not span the region, vectors that do not
            fit or are not finite.
    """
    if len(table.axes) != 2:
        raise FieldError(
            f"{table.name} has {len(table.axes)} axes, expected axis_0 and axis_1: fields have 2 dimensions."
        )
    for number, axis in enumerate(table.axes):
        _check_axis(f"{table.name} axis_{number}", axis)
    for axis in table.axes:
        _check_span(table.name, axis, region_radius)
    return torch.tensor(_checked_vectors(table).transpose(2, 1, 0)[None], dtype=torch.float32)


def axis_ends(axes: Sequence[Sequence[float]]) -> Ends:
    """Where each axis begins and ends."""
    return torch.tensor(
        [[axis[0] for axis in axes], [axis[-1] for axis in axes]], dtype=torch.float32
    )


def interpolate(
    x: Float[Tensor, "*batch 2"], nodes: Nodes, ends: Ends
) -> Float[Tensor, "*batch 2"]:
    """Velocities at x; outside the table those of its border."""
    low, high = ends.to(x.dtype)
    places = (2 * x - (low + high)) / (high - low)
    read = grid_sample(
        nodes.to(x.dtype),
        places.reshape(1, 1, -1, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    return read[0, :, 0].T.reshape(x.shape)


def _check_axis(name: str, axis: Sequence[Any]) -> None:
    nodes = np.asarray(axis, np.float64)
    if nodes.ndim != 1 or len(nodes) < 2:
        raise FieldError(
            f"{name} has shape {nodes.shape}, expected (n,) with n at least 2: give a grid."
        )
    steps = np.diff(nodes)
    if not (steps > 0).all():
        place = int((~(steps > 0)).argmax())
        raise FieldError(
            f"{name} is not increasing ({axis[place]:g}, then {axis[place + 1]:g}): sort the grid."
        )
    if np.ptp(steps) > EVENNESS * steps.mean():
        raise FieldError(
            f"{name} is not evenly spaced (steps {steps.min():.4g} to {steps.max():.4g}): "
            "resample the field on a regular grid."
        )


def _check_span(name: str, axis: Sequence[float], radius: float) -> None:
    slack = 1e-6 * radius
    if axis[0] > slack - radius or axis[-1] < radius - slack:
        raise FieldError(
            f"{name} covers [{axis[0]:g}, {axis[-1]:g}], the evaluation region needs [{-radius:g}, {radius:g}]: "
            "widen the grid or lower active_dynamics.env.region_radius."
        )


def _checked_vectors(table: Table) -> np.ndarray:
    vectors = np.asarray(table.vectors, np.float64)
    expected = (*map(len, table.axes), 2)
    if vectors.shape != expected:
        raise FieldError(
            f"{table.name} vectors has shape {vectors.shape}, expected {expected}: one 2-vector per grid node."
        )
    faulty = ~np.isfinite(vectors).all(2)
    if faulty.any():
        node = tuple(int(place) for place in np.argwhere(faulty)[0])
        raise FieldError(
            f"{table.name} vectors is not finite at node {node}: give a finite vector at each node."
        )
    return vectors
