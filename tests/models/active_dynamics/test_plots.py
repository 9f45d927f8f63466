"""Every figure of every run, and the numbers that they show."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.figures import curves, plane
from quatrain.models.active_dynamics.figures.study import Study, median_with_band
from quatrain.models.active_dynamics.plots import plots
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import named

REPLICATES, LEARNERS = 6, 18


def test_figures_of_one_arm_on_a_line_are_those_that_need_no_plane():
    done = named("one arm on a line")
    with shapes_unchecked():
        figures = plots(done.config, done.state, done.dataset, done.history, done.scores)
    assert set(figures) == {"learning_curve", "actions", "misfit"}
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert "nan" not in " ".join([*texts, *titles]), drawn


@pytest.fixture(scope="module")
def study() -> Study:
    return named("six replicates").study


@pytest.mark.parametrize(
    ("random", "ends", "text"),
    [
        ([1, 0.9, 0.8, 0.7, 0.5], [60, 16], "3.7 times fewer"),
        ([1, 0.5, 0.2, 0.2, 0.1], [24, 60], "2.5 times more"),
        ([1, 0.5, 0.4, 0.3, 1.2], [], None),  # diverges
    ],
)
def test_an_arrow_goes_between_the_moments_of_the_same_error(
    study: Study, random: list[float], ends: list[float], text: str | None
):
    active = [1, 0.5, 0.4, 0.3, 0.2]
    nrmse = np.repeat(np.array([random, active, active]).T, REPLICATES, 1)
    drawn = study._replace(estimate=study.estimate._replace(nrmse=nrmse))
    scores = {"zero_field": 1.0, "affine_field": 0.43, "projection_floor": 1e-3}
    figure = curves.draw_learning_curve(drawn, scores | {"teleport_reference": 0.01})
    (axes,) = figure.axes
    arrows = [item for item in axes.texts if getattr(item, "arrow_patch", None)]
    drawn_ends = [place[0] for arrow in arrows for place in (arrow.xyann, arrow.xy)]
    assert drawn_ends == pytest.approx(ends)
    said = [item.get_text() for item in axes.texts if "times" in item.get_text()]
    assert said == ([text] if text else [])


@pytest.mark.parametrize("replicates", [1, 3, 5])
def test_replicates_too_few_for_an_interval_are_lines_without_a_band(replicates: int):
    values = np.arange(replicates)[:, None] + np.zeros(4)
    axes = Figure().subplots()
    median = median_with_band(axes, np.arange(4), values, color="red")
    assert not axes.collections
    assert [line.get_ydata()[0] for line in axes.lines] == list(range(replicates))
    assert median.tolist() == [(replicates - 1) / 2] * 4


# Maps.


def test_charts_go_by_x1_first_and_agree_with_the_scored_error(study: Study):
    chart = plane.make_chart(study)
    for i, j in ((0, 7), (30, 11), (48, 48)):
        x = torch.tensor([[chart.axis[i], chart.axis[j]]])
        np.testing.assert_allclose(chart.true[i, j], study.training.world.field(x)[0], rtol=1e-5)
        variance = study.training.learner.moments(x.expand(LEARNERS, 1, 2)).variance
        np.testing.assert_allclose(chart.variance[:, i, j], variance[:, 0])
    inside = chart.inside
    size = np.sqrt(np.square(chart.error(2)[inside]).sum() / np.square(chart.true[inside]).sum())
    assert size == pytest.approx(study.estimate.nrmse[-1, 2], rel=0.05)
