"""The table of maps shows what random numbers score beside each cosine, and the missed goals."""

from pipeline.judging.gate import rules_of
from pipeline.studies.grids_table import HEAD, MapResult, goal_lines, grids_table

RULES = rules_of("allo", "large")
PAPER = {"layouts": {"Maze": {"allo": 0.99}, "Hall": {"allo": 0.98}}}
GOOD = {
    "cosine_mean": 0.998,
    "orthogonality": 0.02,
    "floor_random": 0.011,
    "random_unscaled": 0.31,
    "cosine_paper": 0.995,
    "cosine_index": 0.75,
    "random_index": 0.05,
}


def row(result: MapResult) -> list[tuple[str, str]]:
    line = grids_table([result], PAPER).splitlines()[2]
    return list(zip(HEAD, (cell.strip() for cell in line.strip("|").split("|")), strict=True))


def test_a_row_has_intervals_for_several_seeds_and_dashes_for_what_is_missing():
    seeds = [GOOD | {"cosine_mean": cosine} for cosine in (0.998, 0.999, 1.0, 0.999)]
    assert set(row(MapResult("Maze", seeds))) >= {
        ("map", "Maze"),
        ("states", "-"),
        ("seeds", "4"),
        ("cosine", "0.9990 ± 0.0013"),
        ("min", "-"),
        ("random", "0.01"),
        ("random, unscaled", "0.31"),
        ("orthogonality", "0.020"),
        ("paper's metric", "0.9950 ± 0.0000"),
        ("paper ALLO", "0.9900"),
        ("index-wise", "0.7500 ± 0.0000"),
        ("its random", "0.05"),
    }
    alone = row(MapResult("own", [GOOD | {"cosine_paper": None}]))
    assert {("cosine", "0.9980"), ("paper's metric", "-"), ("paper ALLO", "-")} <= set(alone)


def test_goal_lines_name_the_maps_that_miss():
    poor = GOOD | {"cosine_mean": 0.99, "cosine_paper": 0.97}
    results = [MapResult("Maze", [GOOD]), MapResult("Hall", [poor]), MapResult("own", [GOOD])]
    assert goal_lines(results, RULES, PAPER) == [
        "cosine_mean is at least 0.997 by every seed on 2 of 3 maps; not on Hall",
        "orthogonality is at most 0.1 by every seed on 3 of 3 maps",
        "paper's metric is at least the paper's ALLO in the mean on 1 of 2 maps; not on Hall",
        "paper's metric is at least the paper's ALLO by every seed on 1 of 2 maps; not on Hall",
    ]
    assert len(goal_lines(results[2:], RULES, PAPER)) == 2


def test_one_seed_that_misses_is_not_made_up_for_by_the_others():
    best = GOOD | {"cosine_mean": 1.0, "cosine_paper": 1.0}
    for worst in ({"cosine_mean": 0.996}, {"cosine_mean": None}):
        cosine, *_ = goal_lines([MapResult("Maze", [best, best, GOOD | worst])], RULES, PAPER)
        assert cosine == "cosine_mean is at least 0.997 by every seed on 0 of 1 maps; not on Maze"
    *_, mean, every = goal_lines(
        [MapResult("Maze", [best, GOOD | {"cosine_paper": 0.985}])], RULES, PAPER
    )
    assert mean.endswith("in the mean on 1 of 1 maps")
    assert every.endswith("by every seed on 0 of 1 maps; not on Maze")


def test_components_that_collapsed_miss_a_goal_though_each_has_its_cosine():
    collapsed = GOOD | {"cosine_mean": 1.0, "orthogonality": 1.0}
    lines = goal_lines([MapResult("Maze", [collapsed])], RULES, PAPER)
    assert lines[0] == "cosine_mean is at least 0.997 by every seed on 1 of 1 maps"
    assert lines[1].endswith("on 0 of 1 maps; not on Maze")
