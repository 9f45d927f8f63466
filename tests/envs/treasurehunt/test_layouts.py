"""Maps from text: what is read, and what is refused with which words."""

import re

import numpy as np
import pytest

from quatrain.envs.treasurehunt.layouts import (
    LayoutError,
    items,
    open_map,
    parse_map,
    spawnable,
    starts,
    walls,
)

NAME = "iqn.env.layout"


def parsed(*rows, entities=2):
    return parse_map("\n".join(rows), NAME, entities)


def test_an_open_map_is_a_room_in_a_ring_of_walls():
    room = open_map(4, 6)
    assert room.rows == ("######", "#....#", "#....#", "######")
    assert len(starts(open_map(10, 10))) == 64
    assert spawnable(room).sum() == 8
    assert not items(room).any()


def test_each_symbol_has_its_meaning():
    room = parsed("#####", "#.-2#", "#A#A#", "#1..#", "#####")
    assert walls(room)[1:4, 1:4].tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert spawnable(room)[1:4, 1:4].tolist() == [
        [True, False, True],
        [True, False, True],
        [True] * 3,
    ]
    assert items(room)[1:4, 1:4].tolist() == [[0, 0, 2], [0, 0, 0], [1, 0, 0]]
    assert starts(room).tolist() == [[2, 1], [2, 3]]


def test_without_start_cells_agents_start_on_floor_that_holds_no_item():
    assert starts(parsed("#####", "#.1-#", "#####")).tolist() == [[1, 1], [1, 3]]


def test_line_ends_of_windows_and_blank_last_lines_are_no_cells():
    assert parse_map("####\r\n#..#\r\n####\r\n\r\n  \n", NAME, 1) == parse_map(
        "####\n#..#\n####", NAME, 1
    )


def test_a_map_is_hashable_and_keeps_its_name():
    room = parsed("####", "#..#", "####")
    assert (room.name, hash(room)) == (NAME, hash(parsed("####", "#..#", "####")))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["#" * 10, "#........#", "#........#", "#.......#", "#" * 10],
            "iqn.env.layout row 4: 9 cells, row 1 has 10. Write floor as '.', an editor may "
            "have cut trailing blanks.",
        ),
        (["####", "", "####"], "iqn.env.layout row 2: 0 cells, row 1 has 4."),
        (
            ["######", "#....#", "#...G#", "######"],
            "iqn.env.layout row 3, column 5: unknown symbol 'G'. Allowed: # . - A 1-9.",
        ),
        (["####", "#0.#", "####"], "iqn.env.layout row 2, column 2: unknown symbol '0'."),
        (["####", "#².#", "####"], "iqn.env.layout row 2, column 2: unknown symbol '²'."),
        (
            ["####", "#.3#", "####"],
            "iqn.env.layout row 2, column 3: '3' names entity 3, but env.entities has 2.",
        ),
        (
            ["###.#", "#...#", "#####"],
            "iqn.env.layout row 1, column 4: '.' on the border. The outer ring must be '#'.",
        ),
        (
            ["####", "#..#", "#A##"],
            "iqn.env.layout row 3, column 2: 'A' on the border. The outer ring must be '#'.",
        ),
        (
            ["#" * 10, "#..#######", *["#" * 10] * 5, "#" * 10, "########.#", "#" * 10],
            "iqn.env.layout: floor (1,1) cannot reach (8,8). Open a way or wall one region up.",
        ),
        (["####", "#.##", "##.#", "####"], "iqn.env.layout: floor (1,1) cannot reach (2,2)."),
        (["###", "###", "###"], "iqn.env.layout: no floor cell. Write floor as '.'."),
        (["", "  "], "iqn.env.layout: the map is empty. Write rows of # . - A 1-9."),
        (["#" * 257] * 3, "iqn.env.layout: 3x257 cells. At most 256 a side."),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(rows, message):
    with pytest.raises(LayoutError, match="^" + re.escape(message)):
        parsed(*rows)


def test_the_largest_map_is_read():
    assert np.sum(~walls(open_map(256, 256))) == 254**2
    assert parsed("#" * 256, "#" + "." * 254 + "#", "#" * 256).rows[1].count(".") == 254
