"""names and numbers -> Layout: the maps of the project."""

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from quatrain.envs.grid.layouts import Cell, Layout, LayoutError, parse_layout


def rooms(**numbers: Any) -> Layout:
    """Generates rooms (`generators.rooms`); numpy is loaded only for that."""
    from quatrain.envs.grid import generators

    return generators.rooms(**numbers)


def maze(**numbers: Any) -> Layout:
    """Generates a maze (`generators.maze`); numpy is loaded only for that."""
    from quatrain.envs.grid import generators

    return generators.maze(**numbers)


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
