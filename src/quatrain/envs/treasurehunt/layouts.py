"""text -> Map: a checked map of walls, floor, start cells and items at reset"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from quatrain.errors import DataError

# Symbols of a map; BARE is floor that never spawns, a digit floor with that entity at reset.
WALL, FLOOR, BARE, START = "#.-A"

# Largest number of cells of a side of a map.
LARGEST = 256

ITEMS = "123456789"
FLOORS = FLOOR + BARE + START + ITEMS
_NEIGHBOURS = ((-1, 0), (1, 0), (0, -1), (0, 1))


class LayoutError(DataError):
    """Reports a map that cannot be used: which one, where, why and what to change."""


class Map(NamedTuple):
    """Holds a checked map: equal rows enclosed by walls, all floor connected.

    Cells are (y, x), y downwards.
    """

    name: str
    rows: tuple[str, ...]


def open_map(height: int, width: int) -> Map:
    """Returns a map of height x width cells whose only walls are its border."""
    border = WALL * width
    inner = WALL + FLOOR * (width - 2) + WALL
    return Map(f"{height}x{width}", (border, *[inner] * (height - 2), border))


@lru_cache(maxsize=16)
def parse_map(text: str, name: str, entities: int) -> Map:
    """Reads a map: # wall, . floor, - floor that never spawns, A start cell, 1-9 an item at reset.

    Accepts CRLF and drops blank last lines. Messages begin with `name`.

    Raises:
        LayoutError: ragged rows, an unknown symbol, an item of an entity beyond `entities`, an
            open border, no floor, floor in separate regions, more than 256 cells a side.
    """
    rows = [row.removesuffix("\r") for row in text.split("\n")]
    while rows and not rows[-1].strip():
        rows.pop()
    _check_sizes(rows, name)
    for y, row in enumerate(rows, start=1):
        for x, symbol in enumerate(row, start=1):
            _check_symbol(symbol, f"{name} row {y}, column {x}", entities)
    map = Map(name, tuple(rows))
    _check_border(map)
    _check_connected(map)
    return map


def cells_of(map: Map, symbols: str) -> list[tuple[int, int]]:
    """Returns (y, x) of the cells that hold one of the symbols, row-major."""
    return [
        (y, x)
        for y, row in enumerate(map.rows)
        for x, symbol in enumerate(row)
        if symbol in symbols
    ]


def starts(map: Map) -> list[tuple[int, int]]:
    """Returns (y, x) of the start cells, row-major: those marked A, else floor without item."""
    return cells_of(map, START) or cells_of(map, FLOOR + BARE)


def _check_sizes(rows: Sequence[str], name: str) -> None:
    if not rows:
        raise LayoutError(f"{name}: the map is empty. Write rows of # . - A 1-9.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise LayoutError(
                f"{name} row {number}: {len(row)} cells, row 1 has {len(rows[0])}. "
                "Write floor as '.', an editor may have cut trailing blanks."
            )
    if max(len(rows), len(rows[0])) > LARGEST:
        raise LayoutError(f"{name}: {len(rows)}x{len(rows[0])} cells. At most {LARGEST} a side.")


def _check_symbol(symbol: str, where: str, entities: int) -> None:
    if symbol in ITEMS:
        if int(symbol) > entities:
            raise LayoutError(
                f"{where}: '{symbol}' names entity {symbol}, but env.entities has {entities}."
            )
    elif symbol not in (WALL, FLOOR, BARE, START):
        raise LayoutError(f"{where}: unknown symbol {symbol!r}. Allowed: # . - A 1-9.")


def _check_border(map: Map) -> None:
    height, width = len(map.rows), len(map.rows[0])
    on_border = (
        (y, x) for y, x in cells_of(map, FLOORS) if y in (0, height - 1) or x in (0, width - 1)
    )
    for y, x in on_border:
        raise LayoutError(
            f"{map.name} row {y + 1}, column {x + 1}: '{map.rows[y][x]}' on the border. "
            "The outer ring must be '#'."
        )


def _check_connected(map: Map) -> None:
    cells = cells_of(map, FLOORS)
    if not cells:
        raise LayoutError(f"{map.name}: no floor cell. Write floor as '.'.")
    unreached = set(cells[1:])
    reached = cells[:1]
    for y, x in reached:  # grows while it is iterated
        for dy, dx in _NEIGHBOURS:
            cell = (y + dy, x + dx)
            if cell in unreached:
                unreached.remove(cell)
                reached.append(cell)
    if unreached:
        y, x = cells[0]
        far_y, far_x = max(unreached)
        raise LayoutError(
            f"{map.name}: floor ({y},{x}) cannot reach ({far_y},{far_x}). "
            "Open a way or wall one region up."
        )
