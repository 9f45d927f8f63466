"""A layout's walls as text, and the hash of that text."""

import hashlib

from quatrain.envs.grid.layouts import Layout


def layout_rows(layout: Layout) -> tuple[str, ...]:
    """Returns the map as text, top row first: walls `X`, all other cells `.`."""
    return tuple("".join("X" if wall else "." for wall in row) for row in layout.walls)


def layout_hash(layout: Layout) -> str:
    """Returns the first 12 hex digits of the sha256 of the rows, joined by newlines."""
    return hashlib.sha256("\n".join(layout_rows(layout)).encode()).hexdigest()[:12]
