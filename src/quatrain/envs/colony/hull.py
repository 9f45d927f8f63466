"""Points of many sets -> which are corners of their set's convex hull, and its area.

On a CPU choosing by a mask costs an array of pairs twenty times what arithmetic does; so there is none of it.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

CROSS, DOT, MASKED = 1e-25, 1e-17, 1e38
"""Square pixels: both are lost in any product of distances, but make of 0/0 a large number, and of x/0 a larger one
with the sign of x; added to a quotient the last is beyond them all.
"""

PAIRS = 1 << 17
"""Of cells, at once."""


def hull_vertices(
    pos: Float[Tensor, "colonies cells 2"], exists: Bool[Tensor, "colonies cells"]
) -> Bool[Tensor, "colonies cells"]:
    """Which cells are corners of the convex hull of those that exist.

    All of several cells in one corner are. A cell on an edge may be or not: rounding decides.
    """
    present = exists.float()
    inside = torch.where(exists, pos.permute(2, 0, 1).contiguous(), 0.0)
    centroid = inside.sum(2, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)
    found = [corners(x, y, *differences(x, y)) for x, y in blocks(*(inside - centroid) * present)]
    return torch.cat(found) & exists


def blocks(*arrays: Float[Tensor, "colonies cells"]) -> Iterator[tuple[Tensor, ...]]:
    """Some colonies at a time; on a CPU their pairs then stay in the cache of a core."""
    colonies, cells = arrays[0].shape
    rows = max(1, PAIRS // max(1, cells) ** 2) if arrays[0].is_cpu else max(1, colonies)
    return zip(*(array.split(rows) for array in arrays), strict=True)


def differences(
    x: Float[Tensor, "colonies cells"], y: Float[Tensor, "colonies cells"]
) -> tuple[Float[Tensor, "colonies cells cells"], Float[Tensor, "colonies cells cells"]]:
    """dx and dy; [i, j] leads from i to j."""
    return x[:, None] - x[..., None], y[:, None] - y[..., None]


def corners(
    x: Float[Tensor, "colonies cells"],
    y: Float[Tensor, "colonies cells"],
    dx: Float[Tensor, "colonies cells cells"],
    dy: Float[Tensor, "colonies cells cells"],
) -> Bool[Tensor, "colonies cells"]:
    """Which points are corners; dx[i, j] leads from i to j. Overwrites dx and dy.

    x, y: relative to the centroid, where points that do not count may lie: inside they disturb no hull.

    A point is a corner iff the directions to all others span less than π. Measured from the direction v to the
    centroid, a direction d has the angle θ with dot = |v||d| cos θ and cross = |v||d| sin θ. Among those to the left
    (0 ≤ θ ≤ π) the outermost has the smallest cot θ = dot/cross, among those to the right (−π < θ < 0) the largest;
    and since cot has the period π, θ_left − θ_right < π iff cot θ_left > cot θ_right.
    """
    vx, vy = -x[..., None], -y[..., None]
    cross = (dy * vx).addcmul_(dx, vy, value=-1).add_(CROSS)
    cotangent = dx.mul_(vx).addcmul_(dy, vy).add_(DOT).div_(cross)
    side = torch.lt(cross, 0, out=dy)
    leftmost = torch.add(cotangent, side, alpha=MASKED, out=side).amin(2)
    side = torch.gt(cross, 0, out=cross)
    rightmost = cotangent.sub_(side, alpha=MASKED).amax(2)
    away = (x != 0) | (y != 0)  # a point in the centroid is a corner only if all are there
    return (leftmost > rightmost) & (away | ~away.any(1, keepdim=True))


def area(
    x: Float[Tensor, "colonies cells"],
    y: Float[Tensor, "colonies cells"],
    corner: Bool[Tensor, "colonies cells"],
) -> Float[Tensor, " colonies"]:
    """Of the polygon with these corners around the origin: the shoelace formula."""
    order = torch.where(corner, torch.atan2(y, x), torch.inf).argsort(1)
    # Behind the last corner the first one follows, as often as there is room: edges without length.
    order = torch.where(corner.gather(1, order), order, order[:, :1])
    x, y = x.gather(1, order), y.gather(1, order)
    return 0.5 * (x * y.roll(-1, 1) - x.roll(-1, 1) * y).sum(1)
