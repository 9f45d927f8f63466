"""The table of maps shows what random numbers score beside each cosine, and the missed goals."""

from pipeline.reporting.grids import MapResult, goal_lines, grids_table

PAPER = {"layouts": {"Maze": {"allo": 0.99}, "Hall": {"allo": 0.98}}}
GOOD = {"cosine_mean": 0.998, "floor_random": 0.011, "random_unscaled": 0.31, "cosine_paper": 0.995}


def test_a_row_has_intervals_for_several_seeds_and_dashes_for_what_is_missing():
    seeds = [GOOD, GOOD | {"cosine_mean": 0.999}, GOOD | {"cosine_mean": 1.0}]
    line = grids_table([MapResult("Maze", seeds)], PAPER).splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:6] == ["Maze", "-", "3", "0.9990 ± 0.0025", "-", "0.01"]
    assert cells[7] == "0.31"
    assert cells[9] == "0.9950 ± 0.0000"
    assert cells[12] == "0.9900"
    alone = grids_table([MapResult("own", [GOOD | {"cosine_paper": None}])], PAPER).splitlines()[2]
    assert [cell.strip() for cell in alone.strip("|").split("|")][3:10:6] == ["0.9980", "-"]


def test_goal_lines_name_the_maps_that_miss():
    poor = GOOD | {"cosine_mean": 0.99, "cosine_paper": 0.97}
    results = [MapResult("Maze", [GOOD]), MapResult("Hall", [poor]), MapResult("own", [GOOD])]
    assert goal_lines(results, PAPER) == [
        "cosine is at least 0.997 on 2 of 3 maps; not on Hall",
        "paper's metric is at least the paper's ALLO on 1 of 2 maps; not on Hall",
    ]
    assert goal_lines(results[2:], PAPER) == ["cosine is at least 0.997 on 1 of 1 maps"]
