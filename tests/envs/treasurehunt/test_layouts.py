"""Maps from text: what is read, and what is refused with which words."""

import numpy as np

from quatrain.envs.treasurehunt.layouts import open_map, parse_map, starts
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
