"""Every figure of every run, and the numbers that they show."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics.figures import plane
from quatrain.models.active_dynamics.plots import plots
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import named


def test_figures_of_one_arm_on_a_line_are_those_that_need_no_plane():
    done = named("one arm on a line")
    with shapes_unchecked():
        figures = plots(done.config, done.state, done.dataset, done.history, done.evaluation)
    assert set(figures) == {"learning_curve", "actions", "misfit"}
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert "nan" not in " ".join([*texts, *titles]), drawn


# Maps.


def test_charts_go_by_x1_first():
    study = named("default").study
    chart = plane.make_chart(study)
    for i, j in ((0, 7), (30, 11), (48, 48)):
        x = torch.tensor([[chart.axis[i], chart.axis[j]]])
        np.testing.assert_allclose(chart.true[i, j], study.training.world.field(x)[0], rtol=1e-5)
        variance = study.training.learner.moments(x.expand(len(chart.variance), 1, 2)).variance
        np.testing.assert_allclose(chart.variance[:, i, j], variance[:, 0])


@pytest.mark.parametrize("name", ["default", "learned channels"])
def test_charts_agree_with_the_scored_error_in_true_coordinates(name: str):
    study = named(name).study
    chart = plane.make_chart(study)
    inside = chart.inside
    size = np.sqrt(np.square(chart.error(1)[inside]).sum() / np.square(chart.true[inside]).sum())
    assert size == pytest.approx(study.estimate.nrmse[-1, 1], rel=0.05)


def test_the_film_has_a_frame_for_each_checkpoint_with_what_was_learned_by_then():
    study = named("default").study
    with shapes_unchecked():
        film = plane.film_field(study)
    assert len(film.frames) == len(study.steps)
    assert all((before != after).any() for before, after in pairwise(film.frames))
