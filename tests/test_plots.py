"""Curves of several learners, their intervals, and labels that do not overlap."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from quatrain.plots import (
    EndLabel,
    Level,
    curve,
    describe_seeds,
    draw_ladder,
    draw_seeds,
    label_ends,
    mean_with_interval,
    spread,
    within,
)
from quatrain.progress import Progress, by_seed, history, rows
from quatrain.statistics import interquartile_interval


def recorded(learners: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """History of a metric of each learner and one of three agents: 100 learner + 10 agent."""
    time, state, agent = np.arange(4.0)[:, None], 100.0 * np.arange(learners), 10.0 * np.arange(3)
    plain = time + state
    metrics = by_seed({"return": plain, "return/agent": plain[..., None] + agent})
    return history(rows(Progress(8, None, metrics), 0))


@pytest.mark.parametrize("learners", [1, 3])
def test_a_curve_has_the_recorded_values_of_each_learner(learners: int):
    table = recorded(learners)
    expected = np.arange(4.0) + 100 * np.arange(learners)[:, None]
    steps, values = curve(table, "return", learners)
    assert steps.tolist() == [2, 4, 6, 8]
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(curve(table, "return/agent/2", learners).values, expected + 20)


def test_a_band_has_the_interval_but_only_the_line_sets_the_limits():
    axes = Figure().subplots()
    mean_with_interval(axes, np.arange(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    (line,), (band,) = axes.lines, axes.collections
    assert line.get_ydata().tolist() == [2, 3]
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(3 + 12.7062047)
    assert axes.get_ylim() == pytest.approx((1.95, 3.05))


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_few_seeds_are_lines_of_one_colour_without_a_band(seeds: int):
    axes = Figure().subplots()
    values = np.arange(3.0) + 10 * np.arange(seeds)[:, None]
    last = draw_seeds(axes, np.arange(3), values, linewidth=2, label="return")[-1]
    assert not axes.collections
    assert [line.get_ydata().tolist() for line in axes.lines] == values.tolist()
    assert {line.get_linewidth() for line in axes.lines} == {2 if seeds == 1 else 1}
    assert len({line.get_color() for line in axes.lines}) == 1
    assert axes.get_legend_handles_labels()[1] == ["return"]
    assert last == pytest.approx(values[:, -1].mean())
    assert describe_seeds(seeds) == ("" if seeds == 1 else f"A line for each of {seeds} seeds.")


def test_five_seeds_are_their_interquartile_mean_with_its_interval():
    axes = Figure().subplots()
    values = np.array([0.0, 1.0, 2.0, 3.0, 94.0])[:, None] + np.arange(4)
    line = draw_seeds(axes, np.arange(4), values)
    (drawn,), (band,) = axes.lines, axes.collections
    assert drawn.get_ydata().tolist() == line.tolist() == [2, 3, 4, 5]
    low, high = interquartile_interval(values)
    assert low[0] < 2 < high[0]
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(high[-1])
    assert axes.get_ylim()[1] < 6
    assert "interquartile means over 5 seeds; bands" in describe_seeds(5)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([], []),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.1, 0.5, 0.52, 0.9], [0.1, 0.46, 0.56, 0.9]),
        ([0.4, 0.5, 0.5, 0.5], [0.325, 0.425, 0.525, 0.625]),
    ],
)
def test_labels_move_no_more_than_it_takes_to_be_apart(target: list[float], expected: list[float]):
    assert spread(target, 0.1) == pytest.approx(expected)


def test_labels_stay_beside_the_axes_and_apart():
    heights = within([-0.3, -0.2, 0.5, 0.98, 1.08], 0.1)
    assert heights == pytest.approx([0.05, 0.15, 0.5, 0.85, 0.95])


def test_a_ladder_is_sorted_and_its_axis_ends_where_the_metric_does():
    axes = Figure().subplots()
    values = {"truth": 1.0, "learned": 0.5, "random": -0.1}
    levels = [Level(name, value, "k", 0.6) for name, value in reversed(values.items())]
    draw_ladder(axes, levels, 1, (-1.0, 1.0))
    assert [label.get_text() for label in axes.get_yticklabels()] == list(values)
    assert [text.get_text() for text in axes.texts] == ["1.0 ± 0.6", "0.5 ± 0.6", "-0.1 ± 0.6"]
    low, high = axes.get_xlim()
    assert (low > -1, high) == (True, 1)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top


def test_a_label_of_a_logarithmic_axis_is_where_its_line_ends():
    axes = Figure().subplots()
    axes.set(yscale="log", ylim=(1, 100))
    label_ends(axes, [EndLabel(10.0, "ten", "k")])
    assert axes.texts[0].get_position()[1] == pytest.approx(0.5)
