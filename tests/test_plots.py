"""Curves of several learners, their intervals, and labels that do not overlap."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from quatrain.plots import EndLabel, curve, label_ends, mean_with_interval, spread
from quatrain.progress import Progress, by_seed, history, rows


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


def test_a_label_of_a_logarithmic_axis_is_where_its_line_ends():
    axes = Figure().subplots()
    axes.set(yscale="log", ylim=(1, 100))
    label_ends(axes, [EndLabel(10.0, "ten", "k")])
    assert axes.texts[0].get_position()[1] == pytest.approx(0.5)
