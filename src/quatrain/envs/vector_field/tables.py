"""a user's table, or random numbers -> velocities at the nodes of a grid, interpolated bilinearly
between nodes.

Nodes have the layout of grid_sample, [1, component, node of x2, node of x1]: its coordinates are
(x1, x2), while the last axis of its input is x1.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor
from torch.nn.functional import grid_sample

from quatrain.envs.vector_field.kinds import Table
from quatrain.envs.vector_field.table_rules import check_table

# Random tables cover [-BOX, BOX] in both directions.
BOX = 2.0
JITTER = 1e-6
SHORTEST = 1e-8

Nodes = Float[Tensor, "one component x2 x1"]
# The first and the last node of each axis.
Ends = Float[Tensor, "2 axis"]


def gaussian_process(
    s: Float64[Tensor, " node"], length: float, variance: float, generator: Generator
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
        FieldError: it is no field on a grid that covers the region (`check_table`).
    """
    check_table(table, region_radius)
    vectors = np.asarray(table.vectors, np.float64)
    return torch.tensor(vectors.transpose(2, 1, 0)[None], dtype=torch.float32)


def axis_ends(axes: Sequence[Sequence[float]]) -> Ends:
    return torch.tensor([(axis[0], axis[-1]) for axis in axes], dtype=torch.float32).T


def interpolate(
    x: Float[Tensor, "*batch 2"], nodes: Nodes, ends: Ends
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
