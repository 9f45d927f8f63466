"""shapes -> RGB pictures, drawn with numpy alone; the colours that all environments share."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

Color = tuple[int, int, int]
Pixels = float | int
Point = tuple[Pixels, Pixels]
Picture = UInt8[np.ndarray, "height width 3"]

PAPER: Color = (250, 249, 246)
FLOOR: Color = (240, 236, 226)
GROUND: Color = (214, 207, 192)
LINES: Color = (222, 217, 205)
WALL: Color = (72, 78, 89)
INK: Color = (40, 44, 52)
FAINT: Color = (170, 178, 189)
START: Color = (182, 215, 168)
GOAL: Color = (88, 160, 92)
# Okabe and Ito, distinct for colour-blind readers too: agents, then items.
AGENTS: tuple[Color, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (148, 103, 60),
)
ITEMS: tuple[Color, ...] = ((230, 159, 0), (120, 66, 140), (190, 40, 50), (60, 140, 140))
# Stiffness of a plate, from soft to stiff.
SOFT: Color = (243, 246, 250)
STIFF: Color = (118, 152, 190)
# Pixels of the longer side of a picture.
SIDE = 600


def blank(height: int, width: int, color: Color = PAPER) -> Picture:
    """Returns a picture of one colour."""
    return np.full((height, width, 3), color, np.uint8)


def cell_size(height: int, width: int) -> int:
    """Returns the pixels of a side of a cell, with which a map is at most about SIDE wide."""
    return max(4, min(48, SIDE // max(height, width)))


def tiles(colors: UInt8[np.ndarray, "rows cols 3"], size: int) -> Picture:
    """Returns one square of `size` pixels per cell, with fine lines between them."""
    picture = colors.repeat(size, 0).repeat(size, 1)
    if size >= 8:
        picture[::size] = LINES
        picture[:, ::size] = LINES
    return picture


def shade(values: Float[np.ndarray, " width"], height: int, low: Color, high: Color) -> Picture:
    """Returns columns between two colours, for values between 0 and 1."""
    ends = np.array([low, high], float)
    row = ends[0] + values[:, None] * (ends[1] - ends[0])
    return np.broadcast_to(row.round().astype(np.uint8), (height, len(values), 3)).copy()


def disc(picture: Picture, x: Pixels, y: Pixels, radius: Pixels, color: Color) -> None:
    """Draws a filled circle into the picture, with smooth edges; x and y are pixels."""
    box = _box(picture, x - radius, x + radius, y - radius, y + radius)
    rows, cols = box
    distance = np.hypot(cols - x, rows - y)
    _blend(picture, box, radius + 0.5 - distance, color)


def diamond(picture: Picture, x: Pixels, y: Pixels, radius: Pixels, color: Color) -> None:
    """Draws a filled square that stands on a corner."""
    box = _box(picture, x - radius, x + radius, y - radius, y + radius)
    rows, cols = box
    _blend(picture, box, radius + 0.5 - np.abs(cols - x) - np.abs(rows - y), color)


def line(
    picture: Picture,
    start: Point,
    end: Point,
    color: Color,
    width: Pixels = 1.5,
) -> None:
    """Draws a segment between two points (x, y)."""
    (x0, y0), (x1, y1) = start, end
    box = _box(
        picture,
        min(x0, x1) - width,
        max(x0, x1) + width,
        min(y0, y1) - width,
        max(y0, y1) + width,
    )
    rows, cols = box
    dx = x1 - x0
    dy = y1 - y0
    length_squared = max(dx * dx + dy * dy, 1e-9)
    share = np.clip(((cols - x0) * dx + (rows - y0) * dy) / length_squared, 0, 1)
    distance = np.hypot(cols - x0 - share * dx, rows - y0 - share * dy)
    _blend(picture, box, width / 2 + 0.5 - distance, color)


def _box(picture: Picture, left: Pixels, right: Pixels, top: Pixels, bottom: Pixels) -> Any:
    """Returns the rows (a column) and columns (a row) of pixels around a shape."""
    height, width, _ = picture.shape
    rows = np.arange(max(0, int(top) - 1), min(height, int(bottom) + 3))
    cols = np.arange(max(0, int(left) - 1), min(width, int(right) + 3))
    return rows[:, None], cols[None]


def _blend(picture: Picture, box: Any, coverage: np.ndarray, color: Color) -> None:
    if not coverage.size:
        return
    share = np.clip(coverage, 0, 1)[..., None]
    old = picture[box]
    picture[box] = (old + share * (np.array(color, float) - old)).round().astype(np.uint8)
