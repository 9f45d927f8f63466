"""Random one-way doors: distinct, between free cells, never both directions of a passage."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.envs.grid.layouts import (
    LEFT,
    MOVES,
    RIGHT,
    Door,
    LayoutError,
    parse_layout,
    with_random_doors,
)

maps = (
    st.integers(1, 7)
    .flatmap(
        lambda width: st.lists(
            st.text("X.", min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
    .filter(lambda rows: "".join(rows).count(".") >= 2)
)


def test_random_doors_follow_the_seed():
    layout = parse_layout("....\n....\n....", "map.txt")
    assert with_random_doors(layout, 5, 42) == with_random_doors(layout, 5, 42)
    assert with_random_doors(layout, 5, 42).doors != with_random_doors(layout, 5, 43).doors
    assert with_random_doors(layout, 0, 42).doors == ()


@given(maps, st.integers(0, 2**32 - 1), st.data())
@settings(deadline=None)
def test_random_doors_join_free_cells_and_never_close_a_passage(rows, door_seed, data):
    layout = parse_layout("\n".join(rows), "map.txt")
    free = {(x, y) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == "."}
    passages = {
        frozenset([(x, y), (x + dx, y + dy)])
        for x, y in free
        for dx, dy in MOVES
        if (x + dx, y + dy) in free
    }
    count = data.draw(st.integers(0, len(passages)))
    drawn = [
        frozenset([(x, y), (x + MOVES[action][0], y + MOVES[action][1])])
        for x, y, action in with_random_doors(layout, count, door_seed).doors
    ]
    assert len(drawn) == len(set(drawn)) == count
    assert set(drawn) <= passages


def test_random_doors_leave_the_passages_of_drawn_doors_alone():
    layout = parse_layout("DR,.,DL,.", "map.txt")
    for seed in range(20):
        doors = with_random_doors(layout, 1, seed).doors
        assert doors[:2] == layout.doors
        assert doors[2] in {Door(2, 0, RIGHT), Door(3, 0, LEFT)}


def test_both_directions_of_a_passage_are_drawn_sometimes():
    layout = parse_layout("..", "map.txt")
    drawn = {with_random_doors(layout, 1, seed).doors[0] for seed in range(20)}
    assert drawn == {Door(0, 0, RIGHT), Door(1, 0, LEFT)}


def test_more_random_doors_than_passages_are_refused():
    message = (
        "map.txt: doors: 3 but only 2 passages between two cells have no door yet; lower doors"
    )
    with pytest.raises(LayoutError, match=f"^{re.escape(message)}$"):
        with_random_doors(parse_layout("DR,.,.,.", "map.txt"), 3, 42)
