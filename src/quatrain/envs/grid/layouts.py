"""text -> Layout: a checked map of walls, start, goal and one-way doors."""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

Cell = tuple[int, int]
"""(x, y): column and row, both from 0; y grows downward."""

Components = Literal["auto", "start", "largest", "all", "error"]

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""(dx, dy) of each action."""

LETTERS = "URDL"
"""How a tile names each action."""

# Walls and free cells stand alone; a start, a goal or an empty tile may carry doors.
_TILE = re.compile(r"[ .Xx#]|(?P<mark>[SG]?)(?:D(?P<doors>[UDLR]+))?")
_SIZES_SHOWN = 5


class LayoutError(ValueError):
    """A map cannot be used: says which one, where, why and what to change."""


class Door(NamedTuple):
    """A one-way door out of cell (x, y): its action passes, the way back is blocked."""

    x: int
    y: int
    action: int


class Layout(NamedTuple):
    """A map of at least two free cells. start, goal: (x, y) or None; no door leads into a wall."""

    name: str
    walls: Bool[np.ndarray, "height width"]
    start: Cell | None
    goal: Cell | None
    doors: tuple[Door, ...]


def reverse(action: int) -> int:
    """The action that leads back."""
    return (action + 2) % 4


def parse_layout(text: str, name: str) -> Layout:
    """Read a map in plain format (one character a cell) or, if any line has a comma, in tiles.

    Free: space or '.'; wall: X x #; S start, G goal. A tile may also be empty (free) or hold, after an
    optional S or G, `D` with letters of UDLR: one-way doors out of its cell. Blank last lines are dropped.

    Raises:
        LayoutError: ragged lines, an unknown symbol, two starts or goals, an impossible door, fewer than two
            free cells.
    """
    rows = _split(text)
    _check_lengths(rows, name)
    tiles = {
        (x, y): _read(tile, name, x, y) for y, row in enumerate(rows) for x, tile in enumerate(row)
    }
    layout = Layout(
        name=name,
        walls=np.array([[tile in ("X", "x", "#") for tile in row] for row in rows], bool),
        start=_only_one(
            [cell for cell, tile in tiles.items() if tile["mark"] == "S"], "start", name
        ),
        goal=_only_one([cell for cell, tile in tiles.items() if tile["mark"] == "G"], "goal", name),
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
    """The layout itself.

    Raises:
        LayoutError: fewer than two free cells, so that nothing could walk.
    """
    states = count_states(layout)
    if states == 0:
        raise LayoutError(f"{layout.name}: no free cell")
    if states == 1:
        ((y, x),) = np.argwhere(~layout.walls).tolist()
        raise LayoutError(
            f"{layout.name}: only one free cell, {_shown((x, y))}; a walk needs two, free a neighbour of it"
        )
    return layout


def count_states(layout: Layout) -> int:
    """S, the number of free cells."""
    return int(np.sum(~layout.walls))


def layout_rows(layout: Layout) -> tuple[str, ...]:
    """The map as text, top row first: walls `X`, every other cell `.`, without start, goal and doors."""
    return tuple("".join("X" if wall else "." for wall in row) for row in layout.walls)


def layout_hash(layout: Layout) -> str:
    """The first 12 hex digits of the sha256 of the rows, joined by newlines."""
    return hashlib.sha256("\n".join(layout_rows(layout)).encode()).hexdigest()[:12]


def keep_components(layout: Layout, mode: Components) -> Layout:
    """Turn the cells outside the kept connected component into walls; doors do not disconnect.

    auto: the component of S, without S there must be only one. start: the component of S. largest: of equal
    ones the first in row-major order. all: every one. error: there must be only one.

    Raises:
        LayoutError: several components and no rule to choose, `start` without S, or a single cell is kept.
    """
    if mode == "start" and layout.start is None:
        raise LayoutError(
            f"{layout.name} has no start cell, so layout_components: start keeps nothing; "
            "put an S into the map or set layout_components: auto / largest / all"
        )
    components = _components(layout)
    if mode == "all" or len(components) <= 1:
        return layout
    if mode == "largest":
        return checked(_restricted(layout, components[0]))
    if mode == "error" or layout.start is None:
        raise LayoutError(_several(layout, components, mode))
    return checked(
        _restricted(layout, next(cells for cells in components if layout.start in cells))
    )


def with_random_doors(layout: Layout, doors: int, door_seed: int) -> Layout:
    """Add `doors` one-way doors in distinct passages that have none yet, each in a random direction.

    Raises:
        LayoutError: the map has fewer such passages.
    """
    passages = _passages_without_door(layout)
    if doors > len(passages):
        raise LayoutError(
            f"{layout.name}: doors: {doors} but only {len(passages)} passages between two cells have no door "
            "yet; lower doors"
        )
    rng = np.random.default_rng(door_seed)
    chosen = [passages[i] for i in rng.choice(len(passages), doors, replace=False)]
    turned = rng.integers(2, size=doors)
    added = [_other_side(door) if turn else door for door, turn in zip(chosen, turned, strict=True)]
    return layout._replace(doors=layout.doors + tuple(added))


def _split(text: str) -> list[list[str]]:
    """The tiles of each line; a blank line has none in tiles format."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if any("," in line for line in lines):
        return [
            [tile.strip() for tile in line.split(",")] if line.strip() else [] for line in lines
        ]
    return [list(line) for line in lines]


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


def _read(tile: str, name: str, x: int, y: int) -> re.Match[str]:
    match = _TILE.fullmatch(tile)
    if match is None:
        raise LayoutError(
            f"{name} line {y + 1}, column {x + 1}: unknown symbol {tile!r}; "
            "allowed: space . X x # S G (and D+UDLR in comma format)"
        )
    return match


def _only_one(cells: list[Cell], what: str, name: str) -> Cell | None:
    if len(cells) > 1:
        raise LayoutError(f"{name}: two {what} cells, {_shown(cells[0])} and {_shown(cells[1])}")
    return cells[0] if cells else None


def _check_door(door: Door, layout: Layout) -> None:
    height, width = layout.walls.shape
    back = _other_side(door)
    here = f"{layout.name} line {door.y + 1}: door 'D{LETTERS[door.action]}' at {_shown(door[:2])}"
    if not (0 <= back.x < width and 0 <= back.y < height):
        raise LayoutError(f"{here} leads over the border")
    if layout.walls[back.y, back.x]:
        raise LayoutError(f"{here} leads into a wall")
    if back in layout.doors:
        raise LayoutError(
            f"{here} and door 'D{LETTERS[back.action]}' at {_shown(back[:2])} are doors both ways, "
            "which would close the passage; keep one of them"
        )


def _other_side(door: Door) -> Door:
    """The door of the same passage in the other direction."""
    dx, dy = MOVES[door.action]
    return Door(door.x + dx, door.y + dy, reverse(door.action))


def _passages_without_door(layout: Layout) -> list[Door]:
    """Every passage between two free cells that has no door, once each: to the right or down."""
    free = ~layout.walls
    rightward = [Door(int(x), int(y), RIGHT) for y, x in np.argwhere(free[:, :-1] & free[:, 1:])]
    downward = [Door(int(x), int(y), DOWN) for y, x in np.argwhere(free[:-1] & free[1:])]
    taken = {*layout.doors, *map(_other_side, layout.doors)}
    return [door for door in rightward + downward if door not in taken]


def _components(layout: Layout) -> list[list[Cell]]:
    """The cells of each connected component, largest first; within one the first in row-major order leads."""
    cells = [(x, y) for y, x in np.argwhere(~layout.walls).tolist()]
    unseen = set(cells)
    found = [_flood(cell, unseen) for cell in cells if cell in unseen]
    return sorted(found, key=len, reverse=True)


def _flood(first: Cell, unseen: set[Cell]) -> list[Cell]:
    """Take everything connected with `first` out of `unseen`."""
    unseen.remove(first)
    reached = [first]
    for x, y in reached:  # grows while it is walked through
        for dx, dy in MOVES:
            cell = (x + dx, y + dy)
            if cell in unseen:
                unseen.remove(cell)
                reached.append(cell)
    return reached


def _restricted(layout: Layout, cells: list[Cell]) -> Layout:
    walls = np.ones_like(layout.walls)
    x, y = np.transpose(cells)
    walls[y, x] = False
    kept = set(cells)
    return Layout(
        name=layout.name,
        walls=walls,
        start=layout.start if layout.start in kept else None,
        goal=layout.goal if layout.goal in kept else None,
        doors=tuple(door for door in layout.doors if door[:2] in kept),
    )


def _several(layout: Layout, components: list[list[Cell]], mode: Components) -> str:
    *sizes, last = [str(len(cells)) for cells in components]
    if len(sizes) > _SIZES_SHOWN:
        sizes, last = sizes[:_SIZES_SHOWN], f"at most {sizes[_SIZES_SHOWN]}"
    choose = "put an S into the one you mean or set" if mode == "auto" else "set"
    options = "largest / all" if layout.start is None else "start / largest / all"
    return (
        f"{layout.name} has {len(components)} components of {', '.join(sizes)} and {last} cells (for example "
        f"{_shown(components[1][0])} cannot reach {_shown(components[0][0])}); "
        f"{choose} layout_components: {options}"
    )


def _shown(cell: Sequence[int]) -> str:
    return f"({cell[0]},{cell[1]})"
