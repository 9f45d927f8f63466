"""Maps from text: both formats, every error with its words, components."""

import pytest

from quatrain.envs.grid.layouts import Door, keep_components, parse_layout
from tests.envs.grid_maps import layout_rows

UP, RIGHT, DOWN, LEFT = range(4)
# Two components, of 6 and 2 cells; the smaller one holds the last free cell.
SPLIT = "...X.\n...X.\nXXXXX"
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
