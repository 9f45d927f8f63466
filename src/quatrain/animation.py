"""discs, squares and digits in a picture of colour numbers, one after another -> an animation"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

# Rows of the digits 0 to 9, three bits each, from the top.
_DIGITS = (
    (7, 5, 5, 5, 7),
    (2, 6, 2, 2, 7),
    (7, 1, 7, 4, 7),
    (7, 1, 7, 1, 7),
    (5, 5, 7, 1, 1),
    (7, 4, 7, 1, 7),
    (7, 4, 7, 5, 7),
    (7, 1, 1, 1, 1),
    (7, 5, 7, 5, 7),
    (7, 5, 7, 1, 7),
)
# Rows of the bar at the lower edge that shows how much of the animation has passed.
BAR = 4

Frame = UInt8[np.ndarray, "height width"]


class Animation(NamedTuple):
    """Holds pictures of one size that are shown one after another, again and again.

    frames: of each pixel the number of its colour. palette: red, green and blue of each colour.
    milliseconds: how long a frame is shown; the last one stays ten times as long. caption: one
    sentence for a newcomer.
    """

    frames: UInt8[np.ndarray, "frame height width"]
    palette: UInt8[np.ndarray, "color 3"]
    milliseconds: int
    caption: str


def palette_of(colors: Sequence[str]) -> UInt8[np.ndarray, "color 3"]:
    """Returns red, green and blue of colours that matplotlib knows by these names."""
    from matplotlib.colors import to_rgb  # loading a command must not load matplotlib

    return np.array([np.round(255 * np.array(to_rgb(color))) for color in colors], np.uint8)


def paint_discs(
    frame: Frame, centres: Float[np.ndarray, "disc 2"], radius: float, color: int
) -> None:
    """Paints discs around (x, y), in pixels from the upper left corner, into a frame."""
    rows, columns = np.ogrid[: frame.shape[0], : frame.shape[1]]
    for centre_x, centre_y in centres:
        low_y, high_y = _around(centre_y, radius, frame.shape[0])
        low_x, high_x = _around(centre_x, radius, frame.shape[1])
        vertical = (rows[low_y:high_y] - centre_y) ** 2
        horizontal = (columns[:, low_x:high_x] - centre_x) ** 2
        frame[low_y:high_y, low_x:high_x][vertical + horizontal <= radius**2] = color


def paint_line(
    frame: Frame, start: Float[np.ndarray, " 2"], end: Float[np.ndarray, " 2"], color: int
) -> None:
    """Paints a line of one pixel between two points (x, y); what lies outside is left out."""
    points = np.linspace(start, end, 1 + int(np.abs(end - start).max())).round().astype(int)
    inside = ((points >= 0) & (points < frame.shape[::-1])).all(1)
    x, y = points[inside].T
    frame[y, x] = color


def digit(number: int, scale: int) -> Bool[np.ndarray, "row column"]:
    """Returns the pixels of a number's last digit, 5 rows and 3 columns of `scale` pixels."""
    rows = [[bool(bits & bit) for bit in (4, 2, 1)] for bits in _DIGITS[number % 10]]
    return np.kron(np.array(rows), np.ones((scale, scale), bool))


def with_bar(frames: UInt8[np.ndarray, "frame height width"], empty: int, full: int) -> np.ndarray:
    """Returns the frames above a bar that grows from frame to frame."""
    count, _, width = frames.shape
    ends = np.linspace(0, width, count).round()
    passed = np.arange(width) < ends[:, None]
    bar = np.where(passed, full, empty).astype(np.uint8)
    return np.concatenate([frames, np.repeat(bar[:, None], BAR, 1)], 1)


def _around(centre: float, radius: float, size: int) -> tuple[int, int]:
    return max(int(centre - radius), 0), min(int(centre + radius) + 2, size)
