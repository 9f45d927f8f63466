"""text -> Layout: a checked map of walls, start, goal and one-way doors."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from quatrain.errors import DataError

if TYPE_CHECKING:  # whoever only reads a config does not wait for numpy
    import numpy

# (x, y): column and row, both from 0; y grows downward.
Cell = tuple[int, int]

# [y][x]: whether a cell is a wall.
Rows = tuple[tuple[bool, ...], ...]

Components = Literal["auto", "largest", "all"]

UP, RIGHT, DOWN, LEFT = range(4)
# (dx, dy) of each action.
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))

# Letter of each action in a tile.
LETTERS = "URDL"

# Walls and free cells stand alone; a start, a goal or an empty tile may carry doors.
_TILE = re.compile(r"[ .Xx#]|(?P<mark>[SG]?)(?:D(?P<doors>[UDLR]+))?")
_SIZES_SHOWN = 5


class LayoutError(DataError):
    """Reports a map that cannot be used: names the map, the place, the reason and the remedy."""


class Door(NamedTuple):
    """Holds a one-way door out of cell (x, y): its action passes, the way back is blocked."""

    x: int
    y: int
    action: int


class Layout(NamedTuple):
    """Holds a map of at least two free cells.

    rows: whether a cell is a wall, [y][x]. start, goal: (x, y) or None. No door leads into a wall.
    """

    name: str
    rows: Rows
    start: Cell | None
    goal: Cell | None
    doors: tuple[Door, ...]

    @property
    def walls(self) -> "numpy.ndarray":
        """Returns the rows as an array of booleans [height, width]."""
        import numpy

        return numpy.array(self.rows, bool)


def free_cells(layout: Layout) -> list[Cell]:
    """Returns the cells without a wall, row-major."""
    return [
        (x, y) for y, row in enumerate(layout.rows) for x, is_wall in enumerate(row) if not is_wall
    ]


def reverse(action: int) -> int:
    return (action + 2) % 4


def parse_layout(text: str, name: str) -> Layout:
    """Parses a map in plain format (one character a cell) or, if any line has a comma, in tiles.

    Free: space or '.'; wall: X x #; S start, G goal. A tile may also be empty (free) or hold, after
    an optional S or G, `D` with letters of UDLR: one-way doors out of its cell. Blank lines at the
    end are dropped.

    Raises:
        LayoutError: ragged lines, an unknown symbol, two starts or goals, an impossible door, or
            fewer than two free cells.
    """
    rows = _split(text)
    _check_lengths(rows, name)
    tiles = {
        (x, y): _match_tile(tile, name, x, y)
        for y, row in enumerate(rows)
        for x, tile in enumerate(row)
    }
    layout = Layout(
        name=name,
        rows=tuple(tuple(tile in ("X", "x", "#") for tile in row) for row in rows),
        start=_marked_cell(tiles, "S", "start", name),
        goal=_marked_cell(tiles, "G", "goal", name),
        doors=tuple(
            Door(*cell, LETTERS.index(letter))
            for cell, tile in tiles.items()
            for letter in sorted(set(tile["doors"] or ""))
        ),
    )
    for door in layout.doors:
        _check_door(door, layout)
    return checked(layout)


def checked(layout: Layout) -> Layout:
    """Returns the layout itself.

    Raises:
        LayoutError: fewer than two free cells.
    """
    states = count_states(layout)
    if states == 0:
        raise LayoutError(f"{layout.name}: no free cell")
    if states == 1:
        (cell,) = free_cells(layout)
        raise LayoutError(
            f"{layout.name}: only one free cell, {_format(cell)}; "
            "a walk needs two, free a neighbour of it"
        )
    return layout


def count_states(layout: Layout) -> int:
    """Returns S, the number of free cells."""
    return sum(row.count(False) for row in layout.rows)


def keep_components(layout: Layout, mode: Components) -> Layout:
    """Turns the cells outside the selected connected component into walls.

    auto: the component of S; without S there must be only one. largest: of equal ones the first in
    row-major order. all: every one. Doors do not disconnect.

    Raises:
        LayoutError: several components and no rule to choose, or a single cell remains.
    """
    components = _components(layout)
    if mode == "all" or len(components) <= 1:
        return layout
    if mode == "largest":
        return checked(_restricted(layout, components[0]))
    if layout.start is None:
        raise LayoutError(_several(layout, components))
    return checked(
        _restricted(layout, next(cells for cells in components if layout.start in cells))
    )


def _split(text: str) -> list[list[str]]:
    """Returns the tiles of each line; a blank line has none in tiles format."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not any("," in line for line in lines):
        return [list(line) for line in lines]
    return [[tile.strip() for tile in line.split(",")] if line.strip() else [] for line in lines]


def _check_lengths(rows: list[list[str]], name: str) -> None:
    if not rows:
        raise LayoutError(f"{name}: no free cell")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise LayoutError(
                f"{name} line {number}: {len(row)} cells, the first line has {len(rows[0])}. "
                "An editor may have removed trailing spaces; write free cells as '.' "
                "(a blank line inside the map is the same error)"
            )


def _match_tile(tile: str, name: str, x: int, y: int) -> re.Match[str]:
    match = _TILE.fullmatch(tile)
    if match is None:
        raise LayoutError(
            f"{name} line {y + 1}, column {x + 1}: unknown symbol {tile!r}; "
            "allowed: space . X x # S G (and D+UDLR in comma format)"
        )
    return match


def _marked_cell(tiles: dict[Cell, re.Match[str]], mark: str, label: str, name: str) -> Cell | None:
    cells = [cell for cell, tile in tiles.items() if tile["mark"] == mark]
    if len(cells) > 1:
        raise LayoutError(f"{name}: two {label} cells, {_format(cells[0])} and {_format(cells[1])}")
    return cells[0] if cells else None


def _check_door(door: Door, layout: Layout) -> None:
    height, width = len(layout.rows), len(layout.rows[0])
    back = _other_side(door)
    label = f"door 'D{LETTERS[door.action]}' at {_format(door[:2])}"
    where = f"{layout.name} line {door.y + 1}: {label}"
    if not (0 <= back.x < width and 0 <= back.y < height):
        raise LayoutError(f"{where} leads over the border")
    if layout.rows[back.y][back.x]:
        raise LayoutError(f"{where} leads into a wall")
    if back in layout.doors:
        raise LayoutError(
            f"{where} and door 'D{LETTERS[back.action]}' at {_format(back[:2])} are doors both "
            "ways, which would close the passage; keep one of them"
        )


def _other_side(door: Door) -> Door:
    dx, dy = MOVES[door.action]
    return Door(door.x + dx, door.y + dy, reverse(door.action))


def _components(layout: Layout) -> list[list[Cell]]:
    """Returns the cells of each connected component, largest first.

    The first cell of a component is its first in row-major order.
    """
    cells = free_cells(layout)
    unvisited = set(cells)
    return sorted(
        [_flood(cell, unvisited) for cell in cells if cell in unvisited], key=len, reverse=True
    )


def _flood(first: Cell, unvisited: set[Cell]) -> list[Cell]:
    """Returns the cells connected with `first`, and removes them from `unvisited`."""
    unvisited.remove(first)
    component = [first]
    for x, y in component:  # grows during the loop
        for dx, dy in MOVES:
            cell = (x + dx, y + dy)
            if cell in unvisited:
                unvisited.remove(cell)
                component.append(cell)
    return component


def _restricted(layout: Layout, cells: list[Cell]) -> Layout:
    free = set(cells)
    width = len(layout.rows[0])
    return Layout(
        name=layout.name,
        rows=tuple(
            tuple((x, y) not in free for x in range(width)) for y in range(len(layout.rows))
        ),
        start=layout.start if layout.start in free else None,
        goal=layout.goal if layout.goal in free else None,
        doors=tuple(door for door in layout.doors if door[:2] in free),
    )


def _several(layout: Layout, components: list[list[Cell]]) -> str:
    *sizes, last = [str(len(cells)) for cells in components]
    if len(sizes) > _SIZES_SHOWN:
        last = f"at most {sizes[_SIZES_SHOWN]}"
        sizes = sizes[:_SIZES_SHOWN]
    return (
        f"{layout.name} has {len(components)} components of {', '.join(sizes)} and {last} cells "
        f"(for example {_format(components[1][0])} cannot reach {_format(components[0][0])}); "
        "put an S into the one you mean or set layout_components: largest / all"
    )


def _format(cell: Sequence[int]) -> str:
    return f"({cell[0]},{cell[1]})"
