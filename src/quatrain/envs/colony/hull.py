"""points of many sets -> which points are corners of their set's convex hull, and the area of the
hull.

On a CPU, selecting by a mask takes twenty times as long as arithmetic on all pairs; so arithmetic
replaces masks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Square pixels added to a cross product: too little to change one, but turns x/0 into a large
# number of x's sign.
CROSS = 1e-25
# Square pixels added to a dot product: too little to change one, but turns 0/0 into a large number.
DOT = 1e-17
# A number added to a quotient to put it beyond all others.
MASKED = 1e38

# Pairs of cells that are handled at once.
PAIRS = 1 << 17


class Differences(NamedTuple):
    """Holds the vectors between all points of a set; [i, j] leads from i to j."""

    dx: Float[Tensor, "env cell cell"]
    dy: Float[Tensor, "env cell cell"]


def hull_vertices(
    pos: Float[Tensor, "env cell 2"], exists: Bool[Tensor, "env cell"]
) -> Bool[Tensor, "env cell"]:
    """Returns which cells are corners of the convex hull of the existing cells.

    All cells at the position of a corner are corners. Rounding decides about cells on an edge of
    the hull.
    """
    present = exists.float()
    inside = torch.where(exists, pos.permute(2, 0, 1).contiguous(), 0.0)
    centroid = inside.sum(2, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)
    return (
        torch.cat(
            [corners(x, y, differences(x, y)) for x, y in blocks(*(inside - centroid) * present)]
        )
        & exists
    )


def blocks(*arrays: Float[Tensor, "env cell"]) -> Iterator[tuple[Tensor, ...]]:
    """Splits arrays into blocks of sets; on a CPU the pairs of a block fit into the cache of a
    core.
    """
    sets, cells = arrays[0].shape
    if arrays[0].is_cpu:
        sets = PAIRS // max(1, cells) ** 2
    return zip(*(array.split(max(1, sets)) for array in arrays), strict=True)


def differences(x: Float[Tensor, "env cell"], y: Float[Tensor, "env cell"]) -> Differences:
    return Differences(x[:, None] - x[..., None], y[:, None] - y[..., None])


def corners(
    x: Float[Tensor, "env cell"], y: Float[Tensor, "env cell"], to_others: Differences
) -> Bool[Tensor, "env cell"]:
    """Returns which points are corners of their hull. Overwrites `to_others`.

    x, y are relative to the centroid. Points to ignore may lie there: a point inside does not
    change a hull.

    A point is a corner iff the directions to all others span less than π. Measured from the
    direction v to the centroid, a direction d has the angle θ with dot = |v||d| cos θ and cross =
    |v||d| sin θ. Among those to the left (0 ≤ θ ≤ π) the outermost has the smallest cot θ =
    dot/cross, among those to the right (−π < θ < 0) the largest; and since cot has the period π,
    θ_left − θ_right < π iff cot θ_left > cot θ_right.
    """
    vx = -x[..., None]
    vy = -y[..., None]
    dx, dy = to_others
    cross = (dy * vx).addcmul_(dx, vy, value=-1).add_(CROSS)
    cotangent = dx.mul_(vx).addcmul_(dy, vy).add_(DOT).div_(cross)
    side = torch.lt(cross, 0, out=dy)
    leftmost = torch.add(cotangent, side, alpha=MASKED, out=side).amin(2)
    side = torch.gt(cross, 0, out=cross)
    rightmost = cotangent.sub_(side, alpha=MASKED).amax(2)
    # A point at the centroid is a corner only if all points of the set are there.
    outside = (x != 0) | (y != 0)
    return (leftmost > rightmost) & (outside | ~outside.any(1, keepdim=True))


def area(
    x: Float[Tensor, "env cell"], y: Float[Tensor, "env cell"], corner: Bool[Tensor, "env cell"]
) -> Float[Tensor, " env"]:
    """Computes the area of the polygon with these corners around the origin by the shoelace
    formula.
    """
    order = torch.where(corner, torch.atan2(y, x), torch.inf).argsort(1)
    # Padding repeats the first corner: this closes the polygon and adds edges of length 0.
    order = torch.where(corner.gather(1, order), order, order[:, :1])
    x = x.gather(1, order)
    y = y.gather(1, order)
    return 0.5 * (x * y.roll(-1, 1) - x.roll(-1, 1) * y).sum(1)
