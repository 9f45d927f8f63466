"""a world's state, as arrays -> an RGB picture: one drawing for `render`, films and reports"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
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
# Okabe and Ito, distinct for colour-blind readers too.
AGENTS: tuple[Color, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (148, 103, 60),
)
# Items that pay, and items that cost.
GOOD: tuple[Color, ...] = ((230, 159, 0), (190, 40, 50))
BAD: tuple[Color, ...] = ((120, 66, 140), (60, 140, 140))
DOOR: Color = (190, 40, 50)
CELL: Color = (0, 114, 178)
NEW_CELL: Color = (213, 94, 0)
# Stiffness of a plate, from soft to stiff, in so few shades that films are small.
SHADES = 24
SOFT: Color = (243, 246, 250)
STIFF: Color = (118, 152, 190)
# Radius of a cell in pixels of the plate, and its least in those of a picture.
CELL_RADIUS = 2
LEAST_RADIUS = 4
# Pixels of the longer side of a picture.
SIDE = 600


# Maps of cells.


def cell_size(height: int, width: int) -> int:
    """Returns the pixels of a side of a cell, with which a map is at most about SIDE wide."""
    return max(4, min(48, SIDE // max(height, width)))


def draw_grid(
    walls: Bool[np.ndarray, "rows columns"],
    start: Int[np.ndarray, " 2"] | None,
    goal: Int[np.ndarray, " 2"] | None,
    doors: Sequence[tuple[np.ndarray, np.ndarray]],
    agent: Int[np.ndarray, " 2"],
) -> Pixels:
    """Draws walls, start, goal, agent, and a bar in each cell at the side that a door closes.

    start, goal, agent: (x, y). doors: a cell (x, y), and the move that is closed.
    """
    colors = np.where(walls[..., None], WALL, FLOOR).astype(np.uint8)
    for place, color in ((start, START), (goal, GOAL)):
        if place is not None:
            colors[place[1], place[0]] = color
    size = cell_size(*walls.shape)
    image, draw = _tiles(colors, size)
    for cell, move in doors:
        middle = (cell + 0.5 + 0.42 * move) * size
        along = 0.4 * size * move[::-1]
        draw.line((*(middle - along), *(middle + along)), DOOR, 3)
    draw.circle(tuple((agent + 0.5) * size), 0.34 * size, AGENTS[0])
    return np.array(image)


def draw_treasure_hunt(
    rows: Sequence[str],
    values: Sequence[float],
    items: Int[np.ndarray, "rows columns"],
    agents: Int[np.ndarray, "agent 2"],
) -> Pixels:
    """Draws walls, floor where nothing grows, items as diamonds, and numbered agents as discs.

    rows: the map, where # is a wall, and on - nothing grows. values: what each kind of items pays.
    items: 0 none, k of kind k from 1. agents: (y, x).
    """
    symbols = np.array([list(row) for row in rows])[..., None]
    colors = np.where(symbols == "#", WALL, np.where(symbols == "-", GROUND, FLOOR))
    size = cell_size(*items.shape)
    image, draw = _tiles(colors.astype(np.uint8), size)
    for y, x in np.argwhere(items):
        kind = items[y, x] - 1
        palette = GOOD if values[kind] > 0 else BAD
        before = sum((value > 0) == (values[kind] > 0) for value in values[:kind])
        color = palette[before % len(palette)]
        centre = ((x + 0.5) * size, (y + 0.5) * size)
        draw.regular_polygon((*centre, 0.3 * size), 4, rotation=45, fill=color)
    font = ImageFont.load_default(0.45 * size)
    for agent, (y, x) in enumerate(agents):
        centre = ((x + 0.5) * size, (y + 0.5) * size)
        draw.circle(centre, 0.36 * size, AGENTS[agent % len(AGENTS)])
        if len(agents) > 1:
            draw.text(centre, str(agent), "white", font, anchor="mm")
    return np.array(image)


def _tiles(
    colors: UInt8[np.ndarray, "rows cols 3"], size: int
) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Draws one square of `size` pixels per cell, with fine lines between them."""
    pixels = colors.repeat(size, 0).repeat(size, 1)
    if size >= 8:
        lines = np.zeros(pixels.shape[:2], bool)
        lines[::size] = lines[:, ::size] = True
        pixels[lines & (pixels != WALL).any(2)] = LINES
    image = Image.fromarray(pixels)
    return image, ImageDraw.Draw(image)


# Planes.


def draw_colony(
    stiffness: Float[np.ndarray, " columns"],
    height: int,
    goal: float,
    cells: Float[np.ndarray, "cell 2"],
    parents: Int[np.ndarray, " cell"],
    new: Bool[np.ndarray, " cell"],
    window: tuple[float, float, float, float] | None = None,
) -> Pixels:
    """Draws a plate, stiffer where it is darker, the goal as a line, lines from parents to
    children, cells, and on top those that are new.

    window: left, right, low and high of the part that is magnified; None: the whole plate.
    """
    left, right, low, high = window or (0, len(stiffness), 0, height)
    scale = SIDE / max(right - left, high - low)
    columns = left + np.arange(round((right - left) * scale)) / scale
    image = _plate(stiffness, columns, round((high - low) * scale))
    draw = ImageDraw.Draw(image)
    x = (goal - left) * scale
    draw.line((x, 0, x, image.height), GOAL, 3)
    points = (cells - [left, high]) * [scale, -scale]
    for child in np.flatnonzero((parents >= 0) & (parents < len(cells))):
        draw.line((*points[parents[child]], *points[child]), INK)
    radius = max(LEAST_RADIUS, CELL_RADIUS * scale)
    for color, shown in ((CELL, points[~new]), (NEW_CELL, points[new])):
        for point in shown:
            draw.circle(tuple(point), radius, color)
    return np.array(image)


def _plate(
    stiffness: Float[np.ndarray, " columns"], shown: Float[np.ndarray, " shown"], height: int
) -> Image.Image:
    logs = np.log(stiffness)
    share = (logs - logs.min()) / max(np.ptp(logs), 1e-6)
    share = np.round(SHADES * share[shown.astype(int).clip(0, len(logs) - 1)]) / SHADES
    row = np.array(SOFT) + share[:, None] * (np.array(STIFF) - SOFT)
    return Image.fromarray(np.tile(row.round().astype(np.uint8), (height, 1, 1)))


def draw_plane(
    radius: float, trail: Sequence[np.ndarray], arrows: Float[np.ndarray, "arrow 2 2"]
) -> Pixels:
    """Draws the plane with coordinates up to a radius, arrows from dots along them, and the last
    states, the latest as a disc; what is NaN is left out. A missing second dimension is 0.
    """
    image = Image.new("RGB", (SIDE, SIDE), PAPER)
    draw = ImageDraw.Draw(image)
    middle, scale = SIDE / 2, SIDE / (2 * radius)

    def pixel(place: np.ndarray) -> tuple[float, float]:
        x, y = (*place.tolist(), 0.0)[:2]
        return middle + scale * x, middle - scale * y

    draw.line((0, middle, SIDE, middle), LINES)
    draw.line((middle, 0, middle, SIDE), LINES)
    for start, end in arrows:
        draw.line((*pixel(start), *pixel(end)), FAINT)
        draw.circle(pixel(start), 2, FAINT)
    for before, after in pairwise(trail):
        if np.isfinite([*before, *after]).all():
            draw.line((*pixel(before), *pixel(after)), AGENTS[4], 2)
    draw.circle(pixel(trail[-1]), 7, AGENTS[0])
    return np.array(image)
