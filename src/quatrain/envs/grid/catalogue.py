"""names and numbers -> Layout: the maps of the project, random rooms and mazes."""

import difflib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from quatrain.envs.grid.layouts import MOVES, Cell, Layout, LayoutError, checked, parse_layout

if TYPE_CHECKING:  # whoever only reads a config does not wait for numpy
    import numpy

# Two neighbouring rooms as (column, row); the second is right of or below the first.
RoomPair = tuple[Cell, Cell]
# [y][x]: whether a cell is a wall.
Walls = list[list[bool]]


def named_layout(name: str) -> Layout:
    """Returns a map of the catalogue.

    Raises:
        LayoutError: no such name; the message names the nearest one.
    """
    if name not in CATALOGUE:
        nearest = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.0)[0]
        raise LayoutError(
            f"unknown layout {name!r}; did you mean {nearest!r}? Known: {', '.join(CATALOGUE)}; "
            "rooms and maze with numbers of their own; or a path such as inputs/allo/map.txt"
        )
    return CATALOGUE[name]()._replace(name=name)


def _four_rooms(left_wall: int, right_wall: int, openings: tuple[Cell, ...]) -> Layout:
    """Returns 13x13 cells with a frame, a wall along x = 6, and a wall at a row on each side."""
    last = 12
    rows = tuple(
        tuple(
            (x, y) not in openings
            and (x in (0, 6, last) or y in (0, last, left_wall if x < 6 else right_wall))
            for x in range(last + 1)
        )
        for y in range(last + 1)
    )
    return Layout("four rooms", rows, start=None, goal=None, doors=())


def _drawn(rows: str) -> Layout:
    return parse_layout(rows.replace("/", "\n"), "catalogue")


def rooms(*, rows: int, cols: int, height: int, width: int, extra_doors: int, seed: int) -> Layout:
    """Generates rooms of height x width cells, with walls and openings of one cell.

    Each edge of a random spanning tree of the rooms has one opening at a random place of the shared
    wall, and so do `extra_doors` further pairs of neighbours.

    Raises:
        LayoutError: more extra doors than pairs of neighbours are left, or a single free cell.
    """
    rng = _generator(seed)
    tree, spare = _spanning_tree(_shuffled_pairs(rows, cols, rng))
    if not 0 <= extra_doors <= len(spare):
        raise LayoutError(
            f"rooms: extra_doors {extra_doors} must lie in 0..{len(spare)}, the pairs of "
            f"neighbours that {rows} x {cols} rooms have beyond the spanning tree"
        )
    walls = [
        [y % (height + 1) == 0 or x % (width + 1) == 0 for x in range(cols * (width + 1) + 1)]
        for y in range(rows * (height + 1) + 1)
    ]
    for (col, row), (next_col, _) in tree + spare[:extra_doors]:
        left = col * (width + 1)
        top = row * (height + 1)
        if next_col > col:
            walls[top + rng.integers(1, height + 1)][left + width + 1] = False
        else:
            walls[top + height + 1][left + rng.integers(1, width + 1)] = False
    return _without_marks("rooms", walls)


def maze(*, width: int, height: int, braid: float, seed: int) -> Layout:
    """Generates a maze of width x height cells: paths between the odd cells, carved depth-first.

    Carving starts at the top left; then each dead end is opened with probability `braid`.

    Raises:
        LayoutError: an even size.
    """
    for key, size in (("width", width), ("height", height)):
        if size % 2 == 0:
            raise LayoutError(f"maze: {key} {size} must be odd; take {size - 1} or {size + 1}")
    rng = _generator(seed)
    walls = _carve(width, height, rng)
    _open_dead_ends(walls, braid, rng)
    return _without_marks("maze", walls)


def _generator(seed: int) -> "numpy.random.Generator":
    import numpy

    return numpy.random.default_rng(seed)


def _without_marks(name: str, walls: Walls) -> Layout:
    return checked(Layout(name, tuple(map(tuple, walls)), start=None, goal=None, doors=()))


def _shuffled_pairs(rows: int, cols: int, rng: "numpy.random.Generator") -> list[RoomPair]:
    right = [((col, row), (col + 1, row)) for row in range(rows) for col in range(cols - 1)]
    below = [((col, row), (col, row + 1)) for row in range(rows - 1) for col in range(cols)]
    pairs = right + below
    return [pairs[i] for i in rng.permutation(len(pairs))]


def _spanning_tree(pairs: list[RoomPair]) -> tuple[list[RoomPair], list[RoomPair]]:
    """Returns the pairs that join two components (Kruskal's algorithm), and the other pairs."""
    parent: dict[Cell, Cell] = {}

    def root(room: Cell) -> Cell:
        while room in parent:
            room = parent[room]
        return room

    tree = []
    spare = []
    for pair in pairs:
        first_root = root(pair[0])
        second_root = root(pair[1])
        if first_root == second_root:
            spare.append(pair)
        else:
            parent[second_root] = first_root
            tree.append(pair)
    return tree, spare


def _carve(width: int, height: int, rng: "numpy.random.Generator") -> Walls:
    """Connects the odd cells depth-first: exactly one path leads to each."""
    walls = [[True] * width for _ in range(height)]
    walls[1][1] = False
    path = [(1, 1)]
    while path:
        x, y = path[-1]
        closed = [(dx, dy) for dx, dy in _inner_moves(walls, x, y) if walls[y + 2 * dy][x + 2 * dx]]
        if not closed:
            path.pop()
            continue
        dx, dy = closed[rng.integers(len(closed))]
        walls[y + dy][x + dx] = walls[y + 2 * dy][x + 2 * dx] = False
        path.append((x + 2 * dx, y + 2 * dy))
    return walls


def _open_dead_ends(walls: Walls, braid: float, rng: "numpy.random.Generator") -> None:
    """Opens a wall of each remaining dead end with probability `braid`, in place."""
    for y in range(1, len(walls), 2):
        for x in range(1, len(walls[0]), 2):
            moves = _inner_moves(walls, x, y)
            closed = [(dx, dy) for dx, dy in moves if walls[y + dy][x + dx]]
            if len(moves) - len(closed) == 1 and rng.random() < braid:
                dx, dy = closed[rng.integers(len(closed))]
                walls[y + dy][x + dx] = False


def _inner_moves(walls: Walls, x: int, y: int) -> list[Cell]:
    """Returns (dx, dy) of the moves from an odd cell to an odd cell inside the frame."""
    height, width = len(walls), len(walls[0])
    return [(dx, dy) for dx, dy in MOVES if 0 < x + 2 * dx < width and 0 < y + 2 * dy < height]


CATALOGUE: dict[str, Callable[[], Layout]] = {
    "room1": partial(rooms, rows=1, cols=1, height=15, width=15, extra_doors=0, seed=0),
    # The four rooms of Sutton, Precup & Singh (1999), "Between MDPs and semi-MDPs".
    "room4": partial(
        _four_rooms, left_wall=6, right_wall=7, openings=((6, 3), (2, 6), (9, 7), (6, 10))
    ),
    "room4_symmetric": partial(
        _four_rooms, left_wall=6, right_wall=6, openings=((6, 2), (2, 6), (10, 6), (6, 10))
    ),
    "room16": partial(rooms, rows=4, cols=4, height=4, width=4, extra_doors=3, seed=16),
    "room32": partial(rooms, rows=4, cols=8, height=4, width=4, extra_doors=6, seed=32),
    "room64": partial(rooms, rows=8, cols=8, height=4, width=4, extra_doors=12, seed=64),
    "maze9": partial(maze, width=9, height=9, braid=0.1, seed=9),
    "maze19": partial(maze, width=19, height=19, braid=0.1, seed=19),
    "maze33": partial(maze, width=33, height=33, braid=0.1, seed=33),
    "empty": partial(
        _drawn, "S......../........./........./........./........./........./........./........G"
    ),
    "obstacles": partial(
        _drawn, "S......../XXX....../....X..../....X..../....X..../........./....XXXX./........G"
    ),
    "labyrinth": partial(
        _drawn,
        "S.XXXXXXX/X.X.....X/X.X.XXX.X/X...X...X/XXX.XXX.X/X.......X/X.XXXXX.X/X......GX/XXXXXXXXX",
    ),
    "spiral": partial(
        _drawn,
        "XXXXXXXXX/X......XX/X.XXXX.XX/X.XG.X.XX/X.XX.X.XX/X....X.XX/XXXXXX.XX/S......XX/XXXXXXXXX",
    ),
}
