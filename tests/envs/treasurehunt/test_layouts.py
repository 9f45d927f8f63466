"""Maps from text: what is read, and what is refused with which words."""

import re

import numpy as np
import pytest

from quatrain.envs.treasurehunt.layouts import LayoutError, open_map, parse_map, starts
from quatrain.envs.treasurehunt.world import items, spawnable, walls


def parsed(rows):
    return parse_map(rows.replace("/", "\n"), "map.txt", 2)


def test_an_open_map_is_a_room_in_a_ring_of_walls():
    room = open_map(4, 6)
    assert room.rows == ("######", "#....#", "#....#", "######")
    assert spawnable(room).sum() == len(starts(room)) == 8
    assert not items(room).any()
    assert np.sum(~walls(open_map(256, 256))) == 254**2  # the largest


def test_each_symbol_has_its_meaning():
    room = parsed("#####/#.-2#/#A#A#/#1..#/#####")
    inner = (slice(1, 4), slice(1, 4))
    assert walls(room)[inner].astype(int).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert spawnable(room)[inner].astype(int).tolist() == [[1, 0, 1], [1, 0, 1], [1, 1, 1]]
    assert items(room)[inner].tolist() == [[0, 0, 2], [0, 0, 0], [1, 0, 0]]
    assert starts(room) == [(2, 1), (2, 3)]
    # Without start cells agents start on floor that holds no item.
    assert starts(parsed("#####/#.1-#/#####")) == [(1, 1), (1, 3)]


def test_line_ends_of_windows_and_blank_last_lines_are_no_cells():
    room = parsed("####/#..#/####")
    assert parse_map("####\r\n#..#\r\n####\r\n\r\n  \n", "map.txt", 2) == room
    assert (room.name, hash(room)) == ("map.txt", hash(parsed("####/#..#/####")))


RAGGED = " row 3: 4 cells, row 1 has 5. Write floor as '.', an editor may have cut trailing blanks."
CUT = ": floor (1,1) cannot reach (2,4). Open a way or wall one region up."
OPEN = " row 1, column 4: '.' on the border. The outer ring must be '#'."


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("#####/#...#/#..#", RAGGED),
        ("####//####", " row 2: 0 cells, row 1 has 4."),
        ("####/#.G#/####", " row 2, column 3: unknown symbol 'G'. Allowed: # . - A 1-9."),
        ("####/#0.#/####", " row 2, column 2: unknown symbol '0'."),
        ("####/#².#/####", " row 2, column 2: unknown symbol '²'."),
        ("####/#.3#/####", " row 2, column 3: '3' names entity 3, but env.entities has 2."),
        ("###.#/#...#/#####", OPEN),
        ("####/#..#/#A##", " row 3, column 2: 'A' on the border."),
        ("######/#.##.#/####.#/######", CUT),
        ("###/###/###", ": no floor cell. Write floor as '.'."),
        ("/  ", ": the map is empty. Write rows of # . - A 1-9."),
        ("/".join(["#" * 257] * 3), ": 3x257 cells. At most 256 a side."),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(rows, message):
    with pytest.raises(LayoutError, match="^map.txt" + re.escape(message)):
        parsed(rows)
