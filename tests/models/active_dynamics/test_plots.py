"""Every figure of every run, and what the curves over transitions show."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.figures import learning, parts, surprise
from quatrain.models.active_dynamics.figures.parts import COLORS
from quatrain.models.active_dynamics.figures.study import Study, information_at_checkpoints
from quatrain.progress import History
from tests.models.active_dynamics.small_trials import RUNS, named, studied

ALWAYS = {"learning_curve", "information", "innovation", "calibration", "horizon", "actions"}
PLANE = {"field", "uncertainty", "portraits"}
ARMS = ("random", "active", "prbs")


QUICK = ("one arm on a line", "seq_vae")


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in RUNS if name not in QUICK)],
)
def test_every_figure_is_drawn_for_every_run(name: str):
    figures = named(name).figures()
    in_the_plane = name not in ("one arm on a line", "space")
    bound = {"elbo"} if name in ("seq_vae", "ensemble") else set()
    assert set(figures) == ALWAYS | bound | (PLANE if in_the_plane else set())
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert "nan" not in " ".join([*texts, *titles]), drawn


@pytest.fixture(scope="module")
def study() -> Study:
    return studied("six replicates")


def learning_curve(study: Study, **scores: float) -> Axes:
    floors = {"zero_field": 1.0, "affine_field": 0.43, "projection_floor": 1e-3}
    (axes,) = learning.draw_learning_curve(study, floors | scores).axes
    return axes


FINAL = {"transition_ratio.random": 2.5, "field_nrmse.random": 0.4}


def test_learning_curve_has_the_median_error_of_each_arm_in_its_band(study: Study):
    axes = learning_curve(study, **FINAL)
    for place, arm in enumerate(ARMS):
        (line,) = (line for line in axes.lines if line.get_color() == COLORS[arm])
        errors = study.estimate.nrmse[:, 6 * place : 6 * place + 6]
        assert line.get_xdata().tolist() == list(study.steps) == [10, 16, 24, 38, 60]
        np.testing.assert_allclose(line.get_ydata(), np.median(errors, 1))
        band = axes.collections[place].get_paths()[0].vertices
        last = band[band[:, 0] == 60, 1]
        assert (last.min(), last.max()) == pytest.approx((errors[-1].min(), errors[-1].max()))


def test_the_arrow_goes_from_the_last_transition_of_the_rival_to_as_many_fewer(study: Study):
    axes = learning_curve(study, **FINAL)
    (arrow,) = (text for text in axes.texts if getattr(text, "arrow_patch", None))
    assert (arrow.xy, arrow.xyann) == ((60 / 2.5, 0.4), (60, 0.4))
    assert "2.5 times fewer" in {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    ("ratio", "title"),
    [
        (2.5, "know the field after 24 transitions as well as random ones after 60"),
        (0.0, "never know the field as well as random ones after 60 transitions"),
    ],
)
def test_the_title_says_how_much_sooner(study: Study, ratio: float, title: str):
    scores = FINAL | {"transition_ratio.random": ratio}
    assert learning.headline(study, scores) == f"Planned actions {title}"
    arrows = learning_curve(study, **scores).texts
    assert any(getattr(text, "arrow_patch", None) for text in arrows) == (ratio > 0)


def test_without_an_active_arm_the_title_has_the_errors():
    title = learning.headline(studied("one arm on a line"), {"field_nrmse.step": 0.25})
    assert title == "Error of the field after 60 transitions: step 0.25"


@pytest.mark.parametrize(
    ("replicates", "low", "high", "caption"),
    [(3, 0, 2, "minimum to maximum"), (10, 1, 8, "95 % confidence intervals of the median")],
)
def test_bands_are_order_statistics(replicates: int, low: int, high: int, caption: str):
    values = np.random.default_rng(0).permutation(replicates)[:, None] + np.zeros(4)
    axes = Figure().subplots()
    parts.median_with_band(axes, np.arange(4), values, color="red")
    ends = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (low, high)
    assert caption in parts.explain_lines(replicates)
    assert axes.lines[0].get_ydata().tolist() == [(replicates - 1) / 2] * 4
    assert axes.dataLim.height == 0  # that of the line


# Information and surprise.


def recorded(steps: list[int], **metrics: np.ndarray) -> History:
    """Returns records of all arms with an offset of 0.1 by replicate."""
    records = {}
    for name, values in metrics.items():
        for arm in ARMS:
            records[f"{name}.{arm}"] = (np.array(steps), values)
            for place in range(6):
                replicate = f"{name}.{arm}/seed/{place}"
                records[replicate] = (np.array(steps), values + place / 10)
    return records


@pytest.mark.parametrize(
    ("steps", "checkpoints", "records"),
    [([20, 40, 60], [16, 38, 60], [0, 1, 2]), ([20, 22, 60], [16, 60], [0, 2])],
)
def test_information_stands_once_at_the_checkpoint_that_it_is_of(
    study: Study, steps: list[int], checkpoints: list[int], records: list[int]
):
    history = recorded(steps, information_gained=np.array([1.0, 3.0, 3.5]))
    points = information_at_checkpoints(study, history, "prbs")
    assert (points.steps.tolist(), points.records.tolist()) == (checkpoints, records)
    np.testing.assert_allclose(points.values[:, 0], 1 + np.arange(6) / 10)


def test_expected_and_actual_error_have_the_same_unit(study: Study):
    _, right = learning.draw_information(study, named("six replicates").history).axes
    for place, arm in enumerate(ARMS):
        expected, actual = (line for line in right.lines if line.get_color() == COLORS[arm])
        rows = slice(6 * place, 6 * place + 6)
        deviation = np.sqrt(study.estimate.variance[rows].mean((1, 2)))
        error = study.estimate.mean[rows] - study.dataset.held_out.grid_field
        error = np.sqrt(np.square(error).mean((1, 2)))
        # Recorded at every fourth point of the grid.
        np.testing.assert_allclose(expected.get_ydata()[-1], np.median(deviation), rtol=0.1)
        np.testing.assert_allclose(actual.get_ydata()[-1], np.median(error), rtol=0.1)


def test_surprise_above_the_oracle_is_summed_over_transitions_and_channels(study: Study):
    oracle = np.random.default_rng(1).normal(size=(18, 60))
    nll = oracle.reshape(18, 3, 20).mean(2) + 0.25
    steps = [20, 40, 60]
    history = recorded(steps, information_gained=np.ones(3), innovation_nll=np.zeros(3))
    for place in range(6):
        history[f"innovation_nll.active/seed/{place}"] = (np.array(steps), nll[6 + place])
    cost = surprise.excess_cost(study, history, oracle, "active")
    np.testing.assert_allclose(cost.paid, np.full((6, 3), 0.25 * 8 * np.array(steps)))
    np.testing.assert_allclose(cost.rate, 0.25 * 8)
