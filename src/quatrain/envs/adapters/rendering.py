"""shapes -> RGB pictures; the colours that all environments share."""

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

Color = tuple[int, int, int]
Number = float | int
Point = tuple[Number, Number]
Pixels = UInt8[np.ndarray, "height width 3"]

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


class Picture:
    """Draws shapes; x and y are pixels."""

    def __init__(self, pixels: Pixels) -> None:
        self._image = Image.fromarray(pixels)
        self._draw = ImageDraw.Draw(self._image)

    @property
    def pixels(self) -> Pixels:
        """Returns a copy."""
        return np.array(self._image)

    def disc(self, x: Number, y: Number, radius: Number, color: Color) -> None:
        """Fills a circle."""
        self._draw.circle((x, y), radius, fill=color)

    def diamond(self, x: Number, y: Number, radius: Number, color: Color) -> None:
        """Fills a square that stands on a corner."""
        corners = [(x - radius, y), (x, y - radius), (x + radius, y), (x, y + radius)]
        self._draw.polygon(corners, fill=color)

    def line(self, start: Point, end: Point, color: Color, width: int = 1) -> None:
        """Draws a segment between two points (x, y)."""
        self._draw.line((*start, *end), fill=color, width=width)


def cell_size(height: int, width: int) -> int:
    """Returns the pixels of a side of a cell, with which a map is at most about SIDE wide."""
    return max(4, min(48, SIDE // max(height, width)))


def tiles(colors: UInt8[np.ndarray, "rows cols 3"], size: int) -> Pixels:
    """Returns one square of `size` pixels per cell, with fine lines between them."""
    pixels = colors.repeat(size, 0).repeat(size, 1)
    if size >= 8:
        pixels[::size] = LINES
        pixels[:, ::size] = LINES
    return pixels


def shade(values: Float[np.ndarray, " width"], height: int, low: Color, high: Color) -> Pixels:
    """Returns columns between two colours, for values between 0 and 1."""
    ends = np.array([low, high], float)
    row = ends[0] + values[:, None] * (ends[1] - ends[0])
    return np.broadcast_to(row.round().astype(np.uint8), (height, len(values), 3)).copy()
