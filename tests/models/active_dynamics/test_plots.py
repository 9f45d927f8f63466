"""Every figure of every run, and the numbers that they show."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.family import AffineAlignment
from quatrain.models.active_dynamics.figures import curves, plane
from quatrain.models.active_dynamics.figures.study import (
    COLORS,
    Study,
    explain_lines,
    median_with_band,
)
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.plots import plots
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import RUNS, named, studied

ALWAYS = {"learning_curve", "actions"}
PLANE = {"field", "uncertainty"}
ARMS, REPLICATES, LEARNERS = ("random", "active", "prbs"), 6, 18
QUICK = ("one arm on a line", "seq_vae")


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in RUNS if name not in QUICK)],
)
def test_every_figure_is_drawn_for_every_run(name: str):
    done = named(name)
    with shapes_unchecked():
        figures = plots(done.config, done.state, done.dataset, done.history, done.scores)
    of_family = {"elbo"} if name in ("seq_vae", "ensemble") else {"misfit"}
    in_the_plane = name not in ("one arm on a line", "space")
    assert set(figures) == ALWAYS | of_family | (PLANE if in_the_plane else set())
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert "nan" not in " ".join([*texts, *titles]), drawn


@pytest.fixture(scope="module")
def study() -> Study:
    return studied("six replicates")


@pytest.mark.parametrize(
    ("random", "ends", "text"),
    [
        ([1, 0.9, 0.8, 0.7, 0.5], (16, 60), "3.7 times fewer"),
        ([1, 0.5, 0.2, 0.2, 0.1], (60, 24), "2.5 times more"),
        ([1, 0.5, 0.4, 0.3, 0.2], None, None),  # the same
        ([1, 0.5, 0.4, 0.3, 1.2], None, None),  # diverges
    ],
)
def test_an_arrow_goes_between_the_moments_of_the_same_error(
    study: Study, random: list[float], ends: tuple[float, float] | None, text: str | None
):
    active = [1, 0.5, 0.4, 0.3, 0.2]
    nrmse = np.repeat(np.array([random, active, active]).T, REPLICATES, 1)
    drawn = study._replace(estimate=study.estimate._replace(nrmse=nrmse))
    scores = {"zero_field": 1.0, "affine_field": 0.43, "projection_floor": 1e-3}
    scores |= {"teleport_reference": 0.01}
    figure = curves.draw_learning_curve(drawn, scores)
    (axes,) = figure.axes
    arrows = [item for item in axes.texts if getattr(item, "arrow_patch", None)]
    level = max(random[-1], active[-1])
    expected = [] if ends is None else [((ends[1], level), (ends[0], level))]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [
        (pytest.approx(first), pytest.approx(last)) for first, last in expected
    ]
    texts = [item.get_text() for item in axes.texts if "times" in item.get_text()]
    assert texts == ([] if text is None else [text])
    assert ("Arrow" in figure.get_supxlabel()) == (text is not None)
    for arm, values in zip(ARMS, (random, active, active), strict=True):
        (line,) = (line for line in axes.lines if line.get_color() == COLORS[arm])
        np.testing.assert_allclose(line.get_xydata(), np.c_[study.steps, values])


@pytest.mark.parametrize("replicates", [1, 3, 5])
def test_replicates_too_few_for_an_interval_are_lines_without_a_band(replicates: int):
    values = np.arange(replicates)[:, None] + np.zeros(4)
    axes = Figure().subplots()
    median = median_with_band(axes, np.arange(4), values, color="red")
    assert not axes.collections
    assert [line.get_ydata()[0] for line in axes.lines] == list(range(replicates))
    assert median.tolist() == [(replicates - 1) / 2] * 4
    if replicates > 1:
        assert explain_lines(replicates) == f"A line for each of {replicates} replicates."


# Maps.


@pytest.mark.parametrize("failed", [0.0, np.inf])
def test_errors_of_a_learner_that_failed_have_a_colour_scale_too(failed: float):
    """A learned field that no longer depends on its weights is expected to have no error."""
    scale = plane.error_scale(np.array([failed, failed, 1e-40, 0.5, 2.0]))
    assert scale.vmax == 2
    assert scale.inverse(0.5) > 1e-3
    assert plane.error_scale(np.full(3, failed)).inverse(0.5) > 0


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


def test_charts_follow_the_fields_in_true_coordinates(
    study: Study, monkeypatch: pytest.MonkeyPatch
):
    """Learners whose states z mean x = turn z + shift have fields of z."""
    turn, shift = np.array([[0.0, 2.0], [-1.0, 0.5]]), np.array([0.3, -0.2])
    alignment = AffineAlignment(
        torch.tensor(turn).expand(LEARNERS, 2, 2), torch.tensor(shift).expand(LEARNERS, 2)
    )
    monkeypatch.setattr(BayesFilterLearner, "alignment", lambda *_: alignment)
    rbf = make_rbf(study.config.network.rbf, 2).to(torch.float64)
    weights = study.training.learner.belief.mean[3, 2:].view(2, -1)

    def velocity(x: np.ndarray) -> np.ndarray:
        z = torch.tensor((x - shift) @ np.linalg.inv(turn).T)
        return (rbf.features(z) @ weights.T).numpy() @ turn.T

    chart = plane.make_chart(study)
    place = np.array([[chart.axis[5], chart.axis[31]]])
    np.testing.assert_allclose(chart.mean[3, 5, 31], velocity(place)[0], atol=1e-5)
