"""What tests of grids share: drawn maps, walls as text and their hash, and exact refusals."""

import hashlib

from hypothesis import strategies as st

from quatrain.envs.grid.layouts import Layout

MAPS = (
    st.integers(1, 7)
    .flatmap(
        lambda width: st.lists(
            st.text("X.", min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
    .filter(lambda rows: "".join(rows).count(".") >= 2)
)


def layout_rows(layout: Layout) -> tuple[str, ...]:
    return tuple("".join("X" if wall else "." for wall in row) for row in layout.walls)


def layout_hash(layout: Layout) -> str:
    return hashlib.sha256("\n".join(layout_rows(layout)).encode()).hexdigest()[:12]
