"""numbers -> Layout: random generators of rooms and mazes."""

import numpy as np
from jaxtyping import Bool

from quatrain.envs.grid.layouts import MOVES, Cell, Layout, LayoutError, checked

# Two neighbouring rooms as (column, row); the second is right of or below the first.
RoomPair = tuple[Cell, Cell]


def rooms(*, rows: int, cols: int, height: int, width: int, extra_doors: int, seed: int) -> Layout:
    """Generates rooms of height x width cells, with walls and openings of one cell.

    Each edge of a random spanning tree of the rooms has one opening at a random place of the shared
    wall, and so do `extra_doors` further pairs of neighbours.

    Raises:
        LayoutError: a size below 1, more extra doors than pairs of neighbours are left, or a single
            free cell.
    """
    for key, size in {"rows": rows, "cols": cols, "height": height, "width": width}.items():
        if size < 1:
            raise LayoutError(f"rooms: {key} {size} must be at least 1")
    rng = np.random.default_rng(seed)
    tree, spare = _spanning_tree(_shuffled_pairs(rows, cols, rng))
    if not 0 <= extra_doors <= len(spare):
        raise LayoutError(
            f"rooms: extra_doors {extra_doors} must lie in 0..{len(spare)}, the pairs of "
            f"neighbours that {rows} x {cols} rooms have beyond the spanning tree"
        )
    wall_rows = np.arange(rows * (height + 1) + 1) % (height + 1) == 0
    wall_cols = np.arange(cols * (width + 1) + 1) % (width + 1) == 0
    walls = wall_rows[:, None] | wall_cols
    for (col, row), (next_col, _) in tree + spare[:extra_doors]:
        left = col * (width + 1)
        top = row * (height + 1)
        if next_col > col:
            walls[top + rng.integers(1, height + 1), left + width + 1] = False
        else:
            walls[top + height + 1, left + rng.integers(1, width + 1)] = False
    return checked(_without_marks("rooms", walls))


def maze(*, width: int, height: int, braid: float, seed: int) -> Layout:
    """Generates a maze of width x height cells: paths between the odd cells, carved depth-first.

    Carving starts at the top left; then each dead end is opened with probability `braid`.

    Raises:
        LayoutError: an even size, a size below 5, or a braid outside 0..1.
    """
    for key, size in (("width", width), ("height", height)):
        if size < 5 or size % 2 == 0:
            raise LayoutError(
                f"maze: {key} {size} must be odd and at least 5; take {max(5, size | 1)}"
            )
    if not 0 <= braid <= 1:
        raise LayoutError(f"maze: braid {braid} must lie in 0..1")
    rng = np.random.default_rng(seed)
    walls = _carve(width, height, rng)
    _open_dead_ends(walls, braid, rng)
    return checked(_without_marks("maze", walls))


def _without_marks(name: str, walls: Bool[np.ndarray, "height width"]) -> Layout:
    return Layout(name, tuple(map(tuple, walls.tolist())), start=None, goal=None, doors=())


def _shuffled_pairs(rows: int, cols: int, rng: np.random.Generator) -> list[RoomPair]:
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


def _carve(width: int, height: int, rng: np.random.Generator) -> Bool[np.ndarray, "height width"]:
    """Connects the odd cells depth-first: exactly one path leads to each."""
    walls = np.ones((height, width), bool)
    walls[1, 1] = False
    path = [(1, 1)]
    while path:
        x, y = path[-1]
        closed = [(dx, dy) for dx, dy in _inner_moves(walls, x, y) if walls[y + 2 * dy, x + 2 * dx]]
        if not closed:
            path.pop()
            continue
        dx, dy = closed[rng.integers(len(closed))]
        walls[y + dy, x + dx] = walls[y + 2 * dy, x + 2 * dx] = False
        path.append((x + 2 * dx, y + 2 * dy))
    return walls


def _open_dead_ends(
    walls: Bool[np.ndarray, "height width"], braid: float, rng: np.random.Generator
) -> None:
    """Opens a wall of each remaining dead end with probability `braid`, in place."""
    height, width = walls.shape
    for y in range(1, height, 2):
        for x in range(1, width, 2):
            moves = _inner_moves(walls, x, y)
            closed = [(dx, dy) for dx, dy in moves if walls[y + dy, x + dx]]
            if len(moves) - len(closed) == 1 and rng.random() < braid:
                dx, dy = closed[rng.integers(len(closed))]
                walls[y + dy, x + dx] = False


def _inner_moves(walls: Bool[np.ndarray, "height width"], x: int, y: int) -> list[Cell]:
    """Returns (dx, dy) of the moves from an odd cell to an odd cell inside the frame."""
    height, width = walls.shape
    return [(dx, dy) for dx, dy in MOVES if 0 < x + 2 * dx < width and 0 < y + 2 * dy < height]
