"""Curves of several learners, their intervals, labels that do not overlap, and shared figures."""

import numpy as np
import pytest

from quatrain.plots import (
    BLUE,
    RED,
    Figure,
    Level,
    Line,
    PolicyReturns,
    apart,
    curve,
    describe_seeds,
    draw_seeds,
    in_order,
    learning_curve,
    returns_ecdf,
)
from quatrain.progress import Progress, by_seed, history, rows
from quatrain.statistics import half_interval, interquartile_interval


def recorded(learners: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """History of a metric of each learner and one of three agents: 100 learner + 10 agent."""
    time, state, agent = np.arange(4.0)[:, None], 100.0 * np.arange(learners), 10.0 * np.arange(3)
    plain = time + state
    count = 1000 + plain[:, :1]
    metrics = by_seed({"return": plain, "return/agent": plain[..., None] + agent})
    return history(rows(Progress(8, None, metrics | by_seed({"count": count})), 0))


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("learners", [1, 3])
def test_a_curve_has_the_recorded_values_of_each_learner(learners: int):
    table = recorded(learners)
    expected = np.arange(4.0) + 100 * np.arange(learners)[:, None]
    steps, values = curve(table, "return", learners)
    assert steps.tolist() == [2, 4, 6, 8]
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(curve(table, "return/agent/2", learners).values, expected + 20)
    assert curve(table, "return", learners, "count").steps.tolist() == [1000, 1001, 1002, 1003]


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
    assert axes.get_ylim()[1] < 6  # only the line sets the limits
    assert "interquartile means over 5 seeds; bands" in describe_seeds(5)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([], []),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.1, 0.5, 0.52, 0.9], [0.1, 0.46, 0.56, 0.9]),
        ([0.4, 0.5, 0.5, 0.5], [0.3, 0.4, 0.5, 0.6]),
        ([-0.3, -0.2, 0.5, 0.98, 1.08], [0.05, 0.15, 0.5, 0.85, 0.95]),
    ],
)
def test_labels_are_apart_and_beside_the_axes(target: list[float], expected: list[float]):
    assert apart(target, 0.1) == pytest.approx(expected)


def test_a_learning_curve_ends_with_its_last_value_beside_what_policies_score():
    lines = [Line(curve(recorded(3), "return", 3), RED, "greedy")]
    levels = [Level("learned", 90.0, RED, 5.0), Level("random", 0.0, BLUE)]
    left, right = learning_curve(lines, levels, 1, "steps", "return").axes
    assert (texts(left), texts(right)) == (["greedy 103.0"], ["random 0.0", "learned 90.0"])
    assert [bar.has_yerr for bar in right.containers] == [True, False]
    assert left.get_ylim() == right.get_ylim()


def test_policies_are_named_from_the_best_mean_with_an_interval_where_there_is_one():
    few, several = np.array([[1.0, 3.0], [5.0, 7.0]]), np.arange(10.0).reshape(5, 2)
    assert PolicyReturns("few seeds", RED, few).level == Level("few seeds", 4.0, RED)
    assert PolicyReturns("one", RED, few[:1]).level.half == pytest.approx(half_interval(few[0]))
    over_seeds = PolicyReturns("seeds", RED, several).level.half
    assert over_seeds == pytest.approx(half_interval(several.mean(1)))
    policies = [PolicyReturns("a", RED, few), PolicyReturns("b", BLUE, several)]
    (axes,) = returns_ecdf(policies, "return").axes
    named = axes.get_legend_handles_labels()[1]
    assert named == ["b 4.5 ± 3.9", "a 4"]
    assert {tuple(np.unique(line.get_xdata()[1:])) for line in axes.lines} == {
        (1, 3, 5, 7),
        tuple(range(10)),
    }


def test_a_figure_is_titled_by_the_question_of_its_caption():
    figure = Figure()
    pictures = in_order({"b": figure}, {"a": "", "b": "Does it learn? It does."})
    assert list(pictures) == ["b"]
    assert (figure.get_suptitle(), figure.get_label()) == (
        "Does it learn?",
        "Does it learn? It does.",
    )


def test_a_figure_shows_itself_in_a_notebook():
    assert Figure(figsize=(1, 1))._repr_png_().startswith(b"\x89PNG")
