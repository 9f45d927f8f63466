"""Maps from text: both formats, every error with its words, components and random doors."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.envs.grid.layouts import (
    DOWN,
    LEFT,
    RIGHT,
    UP,
    Door,
    LayoutError,
    count_states,
    keep_components,
    parse_layout,
)
from tests.conftest import PAPER_GRIDS
from tests.envs.layout_text import layout_hash, layout_rows

# Two components, of 6 and 2 cells; the smaller one holds the last free cell.
SPLIT = "...X.\n...X.\nXXXXX"


def fails(message):
    return pytest.raises(LayoutError, match=f"^{re.escape(message)}$")


def as_tiles(text):
    return "\n".join(",".join(line) for line in text.split("\n"))


maps = (
    st.integers(1, 7)
    .flatmap(
        lambda width: st.lists(
            st.text("X.", min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
    .filter(lambda rows: "".join(rows).count(".") >= 2)
)


# Reading.


def test_a_plain_map_is_read_cell_by_cell():
    layout = parse_layout("S.X\n#xG", "map.txt")
    np.testing.assert_array_equal(layout.walls, [[False, False, True], [True, True, False]])
    assert layout.name == "map.txt"
    assert (layout.start, layout.goal, layout.doors) == ((0, 0), (2, 1), ())


def test_tiles_may_be_empty_padded_and_carry_doors():
    layout = parse_layout(" SDR ,\t., ,X\n,DDL,GDU,.\n.,,,x", "map.txt")
    np.testing.assert_array_equal(layout.walls, [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]])
    assert (layout.start, layout.goal) == ((0, 0), (2, 1))
    assert set(layout.doors) == {
        Door(0, 0, RIGHT),
        Door(1, 1, DOWN),
        Door(1, 1, LEFT),
        Door(2, 1, UP),
    }


def test_a_letter_given_twice_is_one_door():
    assert parse_layout("DRR,.", "map.txt").doors == (Door(0, 0, RIGHT),)


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\n   \n\n", "\r\n", "\r\n  \r\n"])
def test_trailing_blank_lines_add_no_row(ending):
    assert layout_rows(parse_layout("..X\n.X." + ending, "map.txt")) == ("..X", ".X.")


def test_carriage_returns_before_newlines_change_nothing():
    text = "XXX\nX X\nX X\nXXX\n"
    assert layout_rows(parse_layout(text.replace("\n", "\r\n"), "m")) == layout_rows(
        parse_layout(text, "m")
    )


def test_leading_and_trailing_spaces_are_free_cells():
    assert layout_rows(parse_layout("  X \n XXX", "map.txt")) == ("..X.", ".XXX")


def test_the_hash_sees_walls_only():
    plain, marked = parse_layout("..X\n...", "a"), parse_layout("S,.,#\n.,GDL,", "b")
    assert layout_hash(plain) == layout_hash(marked) == "fc28e20650e4"
    assert layout_hash(plain) != layout_hash(parse_layout("...\n..X", "a"))


@given(maps)
@settings(deadline=None)
def test_written_rows_read_back_the_same_in_both_formats(rows):
    layout = parse_layout("\n".join(rows), "map.txt")
    assert layout_rows(layout) == tuple(rows)
    if len(rows[0]) > 1:  # one column has no comma
        assert layout_rows(parse_layout(as_tiles("\n".join(rows)), "map.txt")) == tuple(rows)


# Errors.


def test_ragged_lines_name_the_line():
    with fails(
        "map.txt line 3: 2 cells, the first line has 4. An editor may have removed trailing "
        "spaces; write free cells as '.' (a blank line inside the map is the same error)"
    ):
        parse_layout("....\n....\n..\n....", "map.txt")


@pytest.mark.parametrize("text", ["...\n\n...", "., ,.\n  \n.,.,."])
def test_a_blank_line_inside_the_map_has_no_cells(text):
    with pytest.raises(
        LayoutError, match=r"^map\.txt line 2: 0 cells, the first line has 3\. An editor"
    ):
        parse_layout(text, "map.txt")


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        (".....\n.....\n....?", "'?'"),
        (".....\n.....\n....\t", r"'\t'"),
        (".....\n.....\n....D", "'D'"),
        (".,,,,\n.,,,,\n,,,,D", "'D'"),
        (".,,,,\n.,,,,\n,,,,XDU", "'XDU'"),
        (".,,,,\n.,,,,\n,,,,DA", "'DA'"),
    ],
)
def test_an_unknown_symbol_is_shown_with_its_place(text, symbol):
    with fails(
        f"map.txt line 3, column 5: unknown symbol {symbol}; "
        "allowed: space . X x # S G (and D+UDLR in comma format)"
    ):
        parse_layout(text, "map.txt")


def test_two_starts_and_two_goals_are_shown_with_their_cells():
    with fails("map.txt: two start cells, (1,1) and (4,2)"):
        parse_layout(".....\n.S...\n....S", "map.txt")
    with fails("map.txt: two goal cells, (0,0) and (1,0)"):
        parse_layout("GG.", "map.txt")


@pytest.mark.parametrize("text", ["", "\n \n", "   ", "XX\n##"])
def test_a_map_without_free_cell_is_refused(text):
    with fails("map.txt: no free cell"):
        parse_layout(text, "map.txt")


def test_a_map_of_one_state_is_refused():
    with fails("map.txt: only one free cell, (2,1); a walk needs two, free a neighbour of it"):
        parse_layout("XXX\nXXS", "map.txt")


def test_a_door_into_a_wall_is_refused():
    with fails("map.txt line 2: door 'DU' at (1,1) leads into a wall"):
        parse_layout(".,X,.\n.,DU,.", "map.txt")


@pytest.mark.parametrize(
    ("text", "door", "cell", "line"),
    [
        ("DU,.,.\n.,.,.", "DU", "(0,0)", 1),
        (".,.,.\n.,.,DR", "DR", "(2,1)", 2),
        (".,.,.\n.,DD,.", "DD", "(1,1)", 2),
        (".,.,.\nDLR,.,.", "DL", "(0,1)", 2),
    ],
)
def test_a_door_over_the_border_is_refused(text, door, cell, line):
    with fails(f"map.txt line {line}: door '{door}' at {cell} leads over the border"):
        parse_layout(text, "map.txt")


def test_doors_both_ways_are_refused():
    with fails(
        "map.txt line 1: door 'DD' at (1,0) and door 'DU' at (1,1) are doors both ways, "
        "which would close the passage; keep one of them"
    ):
        parse_layout(".,DD,.\n.,DU,.", "map.txt")


# Components.


def test_several_components_without_start_are_refused_with_sizes_and_cells():
    message = "map.txt has 2 components of 6 and 2 cells (for example (4,0) cannot reach (0,0)); "
    layout = parse_layout(SPLIT, "map.txt")
    with fails(message + "put an S into the one you mean or set layout_components: largest / all"):
        keep_components(layout, "auto")
    with fails(message + "set layout_components: largest / all"):
        keep_components(layout, "error")


def test_error_mode_refuses_several_components_even_with_a_start():
    with fails(
        "map.txt has 2 components of 6 and 2 cells (for example (4,0) cannot reach (0,0)); "
        "set layout_components: start / largest / all"
    ):
        keep_components(parse_layout(SPLIT.replace(".", "S", 1), "map.txt"), "error")


def test_many_components_are_summed_up():
    with pytest.raises(
        LayoutError, match=r"has 8 components of 4, 3, 2, 1, 1 and at most 1 cells \(for"
    ):
        keep_components(parse_layout("....X...X..X.X.X.X.X.", "map.txt"), "auto")


def test_start_mode_without_a_start_is_refused():
    with fails(
        "map.txt has no start cell, so layout_components: start keeps nothing; "
        "put an S into the map or set layout_components: auto / largest / all"
    ):
        keep_components(parse_layout("...", "map.txt"), "start")


@pytest.mark.parametrize("mode", ["auto", "start"])
def test_the_component_of_the_start_is_kept(mode):
    layout = keep_components(parse_layout("...X.\nG..XS\nXXXXX", "map.txt"), mode)
    assert layout_rows(layout) == ("XXXX.", "XXXX.", "XXXXX")
    assert (layout.start, layout.goal) == ((4, 1), None)


def test_largest_drops_start_and_doors_outside_of_it():
    layout = keep_components(parse_layout("DR,.,.,X,SDD\n.,.,.,X,.", "map.txt"), "largest")
    assert layout_rows(layout) == ("...XX", "...XX")
    assert (layout.start, layout.doors) == (None, (Door(0, 0, RIGHT),))


def test_of_equally_large_components_the_first_is_kept():
    assert layout_rows(keep_components(parse_layout(".X.\n.X.", "m"), "largest")) == (".XX", ".XX")


def test_all_keeps_every_component():
    assert layout_rows(keep_components(parse_layout(SPLIT, "map.txt"), "all")) == tuple(
        SPLIT.split("\n")
    )


@pytest.mark.parametrize("mode", ["auto", "start", "largest", "all", "error"])
def test_a_connected_map_stays_as_it_is(mode):
    layout = parse_layout("S..\nX.X", "map.txt")
    assert layout_rows(keep_components(layout, mode)) == ("...", "X.X")


def test_a_start_that_is_walled_in_is_refused():
    with fails("map.txt: only one free cell, (0,0); a walk needs two, free a neighbour of it"):
        keep_components(parse_layout("SX..", "map.txt"), "auto")


def test_a_door_does_not_disconnect():
    layout = parse_layout("DR,.,.", "map.txt")
    assert keep_components(layout, "error") is layout


# The paper's grids, where they lie beside the project.


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("GridRoom-1", 225),
        ("GridRoom-4", 104),
        ("GridRoomSym-4", 104),
        ("GridRoom-16", 271),
        ("GridRoom-64", 1088),
        ("GridMaze-7", 11),
        ("GridMaze-19", 161),
    ],
)
def test_the_grids_of_the_paper_have_their_published_sizes(name, states):
    path = PAPER_GRIDS / f"{name}.txt"
    if not path.exists():
        pytest.skip("the paper's grids are data that is not part of the project")
    layout = keep_components(parse_layout(path.read_text(), path.name), "error")
    assert count_states(layout) == states
