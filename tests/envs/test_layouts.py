"""Maps from text: both formats, every error with its words, components."""

import pytest

from quatrain.envs.grid.layouts import Door, keep_components, parse_layout
from tests.envs.grid_maps import fails, layout_rows

UP, RIGHT, DOWN, LEFT = range(4)
# Two components, of 6 and 2 cells; the smaller one holds the last free cell.
SPLIT = "...X.\n...X.\nXXXXX"
DOORS_BOTH_WAYS = (
    "map.txt line 1: door 'DD' at (1,0) and door 'DU' at (1,1) are doors both ways, "
    "which would close the passage; keep one of them"
)
RAGGED = (
    "An editor may have removed trailing spaces; write free cells as '.' "
    "(a blank line inside the map is the same error)"
)
UNKNOWN = (
    "map.txt line 3, column 5: unknown symbol {}; "
    "allowed: space . X x # S G (and D+UDLR in comma format)"
)
TWO_NEEDED = "a walk needs two, free a neighbour of it"
EIGHT = "8 components of 4, 3, 2, 1, 1 and at most 1 cells (for example (5,0)"
SEVERAL = "....X...X..X.X.X.X.X."
COMPONENTS = (
    "map.txt has {} cannot reach (0,0)); "
    "put an S into the one you mean or set layout_components: largest / all"
)
TILES = " SDRR ,\t., ,X\n,DDL,GDU,.\n.,,,x"
TILE_DOORS = [Door(0, 0, RIGHT), Door(1, 1, DOWN), Door(1, 1, LEFT), Door(2, 1, UP)]


@pytest.mark.parametrize(
    ("text", "rows", "start", "goal", "doors"),
    [
        ("S.X\n#xG", "..X XX.", (0, 0), (2, 1), []),
        (TILES, "...X .... ...X", (0, 0), (2, 1), TILE_DOORS),
        # Blank last lines add no row, other blanks are free cells.
        *(
            (f"  X \r\n XXX{ending}", "..X. .XXX", None, None, [])
            for ending in ("", "\n   \n\n", "\r\n  \r\n")
        ),
    ],
)
def test_a_map_is_read_cell_by_cell(text, rows, start, goal, doors):
    layout = parse_layout(text, "map.txt")
    assert (layout.name, layout_rows(layout)) == ("map.txt", tuple(rows.split()))
    assert (layout.start, layout.goal, sorted(layout.doors)) == (start, goal, sorted(doors))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("....\n....\n..\n....", f"map.txt line 3: 2 cells, the first line has 4. {RAGGED}"),
        (".....\n.....\n....?", UNKNOWN.format("'?'")),
        (".,,,,\n.,,,,\n,,,,XDU", UNKNOWN.format("'XDU'")),
        (".....\n.S...\n....S", "map.txt: two start cells, (1,1) and (4,2)"),
        ("GG.", "map.txt: two goal cells, (0,0) and (1,0)"),
        ("\n \n", "map.txt: no free cell"),
        ("XX\n##", "map.txt: no free cell"),
        ("XXX\nXXS", f"map.txt: only one free cell, (2,1); {TWO_NEEDED}"),
        ("SX..", f"map.txt: only one free cell, (0,0); {TWO_NEEDED}"),
        (".,X,.\n.,DU,.", "map.txt line 2: door 'DU' at (1,1) leads into a wall"),
        ("DU,.,.\n.,.,.", "map.txt line 1: door 'DU' at (0,0) leads over the border"),
        (".,.,.\n.,.,DR", "map.txt line 2: door 'DR' at (2,1) leads over the border"),
        (".,.,.\n.,DD,.", "map.txt line 2: door 'DD' at (1,1) leads over the border"),
        (".,.,.\nDLR,.,.", "map.txt line 2: door 'DL' at (0,1) leads over the border"),
        (".,DD,.\n.,DU,.", DOORS_BOTH_WAYS),
        (SPLIT, COMPONENTS.format("2 components of 6 and 2 cells (for example (4,0)")),
        (SEVERAL, COMPONENTS.format(EIGHT)),
    ],
)
def test_a_map_that_cannot_be_used_is_refused_with_its_place(text, message):
    with fails(message):
        keep_components(parse_layout(text, "map.txt"), "auto")


@pytest.mark.parametrize(
    ("text", "mode", "rows"),
    [
        ("...X.\nG..XS\nXXXXX", "auto", "XXXX. XXXX. XXXXX"),
        (SPLIT, "largest", "...XX ...XX XXXXX"),
        (".X.\n.X.", "largest", ".XX .XX"),  # of equal ones the first
        (SPLIT, "all", SPLIT.replace("\n", " ")),
        *[("S..\nX.X", mode, "... X.X") for mode in ("auto", "largest")],
        ("DR,.,.", "auto", "..."),  # a door does not disconnect
    ],
)
def test_the_selected_components_are_kept(text, mode, rows):
    layout = keep_components(parse_layout(text, "map.txt"), mode)
    assert layout_rows(layout) == tuple(rows.split())


def test_marks_and_doors_outside_of_the_component_are_dropped():
    layout = keep_components(parse_layout("DR,.,.,X,SDD\n.,.,G,X,.", "map.txt"), "largest")
    assert (layout.start, layout.goal) == (None, (2, 1))
    assert layout.doors == (Door(0, 0, RIGHT),)
    layout = keep_components(parse_layout("...X.\nG..XS", "map.txt"), "auto")
    assert (layout.start, layout.goal) == ((4, 1), None)
