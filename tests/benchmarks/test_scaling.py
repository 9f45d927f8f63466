"""The model of a sweep's time agrees with what can be said without one, and with a real sweep."""

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.scaling import measure
from benchmarks.scaling.measure import BEGIN, END, Timeline
from benchmarks.scaling.model import Costs, estimates, limits, makespan
from quatrain.errors import DataError
from quatrain.storage import folders

COSTS = Costs(seconds=[4.0, 6.0, 5.0], overhead=1.0, driver=0.5, ends=10.0)


def test_one_node_takes_the_sum_and_many_take_the_longest_trial_behind_the_driver():
    seconds = [4.0, 6.0, 5.0, 9.0]
    assert makespan(seconds, COSTS, 1) == 10 + sum(seconds) + 4 * 1.5
    assert makespan(seconds, COSTS, 4) == 10 + 4 * 0.5 + 1 + 9
    assert makespan(seconds, COSTS, 400) == makespan(seconds, COSTS, 4)


def test_no_schedule_beats_a_limit_and_none_is_worse_than_all_of_them():
    seconds = [float(2 + (7 * index) % 11) for index in range(40)]
    for nodes in (1, 2, 3, 8, 40):
        time = makespan(seconds, COSTS, nodes) - COSTS.ends
        bounds = limits(seconds, COSTS, nodes)
        assert max(bounds) <= time <= sum(bounds)


def test_the_limit_goes_from_the_nodes_to_the_driver_or_to_the_longest_trial():
    names = [each.limit for each in estimates(COSTS, 64, (1, 64))]
    assert names == ["nodes", "driver"]
    names = [each.limit for each in estimates(COSTS, 64, (1, 64), mean=300)]
    assert names == ["nodes", "longest trial"]


def test_more_nodes_are_never_slower_and_never_faster_than_their_number():
    estimated = estimates(COSTS, 64, (1, 2, 4, 8, 16, 32, 64))
    assert all(a.seconds >= b.seconds for a, b in pairwise(estimated))
    assert all(each.speed_up <= each.nodes for each in estimated)
    assert estimated[0].speed_up == 1


def timeline(nodes: int) -> Timeline:
    begins = [8.0, 16.0, 24.0]
    ends = [15.0, 23.0, 31.0]
    return Timeline(nodes, begins, ends, seconds=[5.0, 5.0, 5.0], whole=33.0, driver=1.5)


def test_the_model_gives_back_the_sweep_that_its_costs_are_from():
    costs = measure.costs_of(timeline(1))
    assert costs == Costs([5.0, 5.0, 5.0], overhead=2.5, driver=0.5, ends=10.0)
    # A gap more than the command has: there is one behind the last trial too.
    assert makespan(costs.seconds, costs, 1) == 33.0 + 1.0


def test_the_table_is_written_between_the_marks(tmp_path: Path):
    results, page = tmp_path / "scaling.json", tmp_path / "cluster.md"
    stored = {"cores": 2, "load": 0.3, "sweeps": [timeline(nodes)._asdict() for nodes in (1, 2)]}
    folders.write_json(results, stored)
    page.write_text(f"above\n\n{BEGIN}\nold\n{END}\n\nbelow\n")
    arguments = ["--page", "--results", str(results), "--docs", str(page)]
    assert measure.main(arguments) == 0
    text = page.read_text()
    assert text.startswith(f"above\n\n{BEGIN}\n\nMeasured: 3 trials")
    assert text.endswith(f"\n\n{END}\n\nbelow\n")
    assert "old" not in text
    assert "| 64 |" in text
    assert measure.main(arguments) == 0
    assert page.read_text() == text
    page.write_text("no marks")
    with pytest.raises(DataError, match="needs the lines"):
        measure.main(arguments)
