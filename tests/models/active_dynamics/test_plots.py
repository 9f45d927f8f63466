"""Figures of every run, and what those over transitions show."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.figures import learning, parts, surprise
from quatrain.models.active_dynamics.figures.parts import COLORS
from quatrain.models.active_dynamics.figures.study import Study, information_at_checkpoints
from quatrain.progress import History
from tests.models.active_dynamics.small_runs import RUNS, Run, named, studied

ALWAYS = {"learning_curve", "information", "innovation", "calibration", "horizon", "actions"}
PLANE = {"field", "uncertainty", "portraits"}


def titles(axes: Axes) -> str:
    return axes.get_title(loc="left")


def texts(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def lines_of(axes: Axes, arm: str) -> list[Any]:
    return [line for line in axes.lines if line.get_color() == COLORS[arm]]


def arrows_of(axes: Axes) -> list[Any]:
    return [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]


# Every figure of every run.

OF_A_LINE_OR_A_SPACE = ("a line", "a space")
OF_SEQ_VAE = ("seq_vae", "an ensemble")


@pytest.mark.parametrize("name", RUNS)
def test_every_figure_is_drawn_for_every_run(name: str):
    figures = named(name).figures()
    expected = (
        ALWAYS
        | (set() if name in OF_A_LINE_OR_A_SPACE else PLANE)
        | ({"elbo"} if name in OF_SEQ_VAE else set())
    )
    assert set(figures) == expected
    for drawn, figure in figures.items():
        figure.canvas.draw()
        assert all(axes.has_data() for axes in figure.axes), drawn
        assert not [
            text for axes in figure.axes for text in (*texts(axes), titles(axes)) if "nan" in text
        ], drawn


def test_some_of_those_runs_are_what_they_are_called():
    assert named("all arms, and episodes that end").state.replay.truncated.any()
    assert len(named("one replicate, one record").history["field_sd.active"][0]) == 1


# The error of the field.


def learning_curve(result: Run, study: Study, **scores: float) -> Axes:
    (axes,) = learning.draw_learning_curve(study, result.scores | scores).axes
    return axes


@pytest.fixture
def plain() -> Run:
    return named("six replicates")


@pytest.fixture
def study() -> Study:
    return studied("six replicates")


def test_learning_curve_is_the_median_error_of_each_arm_at_its_checkpoints(
    plain: Run, study: Study
):
    axes = learning_curve(plain, study)
    for place, arm in enumerate(("random", "active", "prbs")):
        (line,) = lines_of(axes, arm)
        errors = study.estimate.nrmse[:, 6 * place : 6 * place + 6]
        assert line.get_xdata().tolist() == list(study.steps)
        np.testing.assert_allclose(line.get_ydata(), np.median(errors, 1))
        assert line.get_ydata()[-1] == pytest.approx(plain.scores[f"field_nrmse.{arm}"])
    assert study.steps[-1] == 60


def test_bands_are_from_the_second_order_statistic_on_as_many_as_it_takes(plain: Run, study: Study):
    axes = learning_curve(plain, study)
    for band, place in zip(axes.collections, range(3), strict=True):
        last = band.get_paths()[0].vertices
        last = last[last[:, 0] == 60, 1]
        errors = study.estimate.nrmse[-1, 6 * place : 6 * place + 6]
        assert (last.min(), last.max()) == pytest.approx((errors.min(), errors.max()))


def test_floors_below_the_curves_are_told_at_the_edge(plain: Run, study: Study):
    axes = learning_curve(plain, study, projection_floor=1e-3, affine_field=0.43)
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_color() == "0.35"]
    assert levels == [plain.scores["zero_field"], 0.43]
    assert "↓ best of these features 0.001" in texts(axes)
    assert axes.get_ylim()[0] > 1e-3


def test_the_arrow_goes_from_the_rival_s_last_transition_to_as_many_fewer(plain: Run, study: Study):
    scores = {"transition_ratio.random": 2.5, "field_nrmse.random": 0.4}
    axes = learning_curve(plain, study, **scores)
    (arrow,) = arrows_of(axes)
    assert arrow.xy == (60 / 2.5, 0.4)
    assert arrow.xyann == (60, 0.4)
    assert "2.5 times fewer" in texts(axes)
    assert (
        titles(axes)
        == "Planned actions know the field after 24 transitions as well as random ones after 60"
    )


def test_where_nothing_was_won_no_arrow_says_so(plain: Run, study: Study):
    axes = learning_curve(plain, study, **{"transition_ratio.random": 0.0})
    assert not arrows_of(axes)
    assert (
        titles(axes)
        == "Planned actions never know the field as well as random ones after 60 transitions"
    )


def test_without_an_active_arm_the_errors_are_told():
    result = named("one arm, which is not active")
    assert learning.headline(studied("one arm, which is not active"), result.scores).startswith(
        "Error of the field after 60 transitions: step 0."
    )


# Medians and bands.


def band_of(values: np.ndarray) -> Figure:
    figure = Figure()
    parts.median_with_band(figure.subplots(), np.arange(values.shape[1]), values, color="red")
    return figure


@pytest.mark.parametrize(
    ("replicates", "low", "high", "said"),
    [
        (3, 0, 2, "minimum to maximum"),
        (6, 0, 5, "95 % confidence intervals of the median"),
        (10, 1, 8, "95 % confidence intervals of the median"),
    ],
)
def test_bands_are_order_statistics(replicates: int, low: int, high: int, said: str):
    values = np.random.default_rng(0).permutation(replicates)[:, None] + np.zeros(4)
    (axes,) = band_of(values).axes
    (band,) = axes.collections
    reached = band.get_paths()[0].vertices[:, 1]
    assert (reached.min(), reached.max()) == (low, high)
    assert said in parts.explain_lines(replicates)
    assert axes.lines[0].get_ydata().tolist() == [(replicates - 1) / 2] * 4
    assert axes.dataLim.height == 0  # the line alone


def test_one_replicate_has_no_band():
    (axes,) = band_of(np.arange(5.0)[None]).axes
    assert not axes.collections
    assert parts.explain_lines(1) == "One replicate."


def test_numbers_have_two_digits_that_count():
    assert [parts.format_number(value) for value in (0.0791, 1.25, 9.97, 99.7, 12345.6)] == [
        "0.079",
        "1.2",
        "10",
        "100",
        "12,346",
    ]


# Information.


def recorded(study: Study, **metrics: np.ndarray) -> History:
    """Returns records at transitions 20, 40, 60, with an offset of .1 by replicate."""
    steps, result = np.array([20, 40, 60]), {}
    for name, values in metrics.items():
        for arm in study.arms:
            result[f"{name}.{arm}"] = (steps, values)
            result |= {
                f"{name}.{arm}/seed/{replicate}": (steps, values + replicate / 10)
                for replicate in range(study.config.seeds)
            }
    return result


def test_information_stands_at_the_checkpoint_that_it_is_of(study: Study):
    assert study.steps == (10, 16, 24, 38, 60)
    records = information_at_checkpoints(
        study, recorded(study, information_gained=np.array([1.0, 3.0, 3.5])), "prbs"
    )
    assert records.steps.tolist() == [16, 38, 60]
    assert records.records.tolist() == [0, 1, 2]
    np.testing.assert_allclose(records.values[:, 1], 3 + np.arange(6) / 10)


def test_a_checkpoint_is_drawn_once(study: Study):
    steps = np.array([20, 22, 60])
    twice = {
        name: (steps, values)
        for name, (_, values) in recorded(study, information_gained=np.ones(3)).items()
    }
    assert information_at_checkpoints(study, twice, "prbs").steps.tolist() == [16, 60]


def test_what_is_believed_and_what_is_wrong_are_in_the_same_unit(plain: Run, study: Study):
    _, right = learning.draw_information(study, plain.history).axes
    for place, arm in enumerate(("random", "active", "prbs")):
        believed, wrong = lines_of(right, arm)
        rows = slice(6 * place, 6 * place + 6)
        np.testing.assert_allclose(
            believed.get_ydata()[-1],
            np.median(np.sqrt(study.estimate.variance[rows].mean((1, 2)))),
            rtol=0.1,
        )
        error = np.sqrt(
            np.square(study.estimate.mean[rows] - study.dataset.held_out.grid_field).mean((1, 2))
        )
        np.testing.assert_allclose(
            wrong.get_ydata()[-1], np.median(error), rtol=0.1
        )  # of every fourth point


# Surprise.


def test_surprise_above_the_oracle_s_is_summed_over_transitions_and_channels(study: Study):
    by_oracle = np.random.default_rng(1).normal(size=(18, 60))
    arm_nll = by_oracle.reshape(18, 3, 20).mean(2) + 0.25
    history = recorded(study, information_gained=np.ones(3), innovation_nll=np.zeros(3))
    for replicate in range(6):
        history[f"innovation_nll.active/seed/{replicate}"] = (
            np.array([20, 40, 60]),
            arm_nll[6 + replicate],
        )
    result = surprise.excess_cost(study, history, by_oracle, "active")
    np.testing.assert_allclose(result.paid, np.full((6, 3), 0.25 * 8 * np.array([20, 40, 60])))
    np.testing.assert_allclose(result.rate, 0.25 * 8)


def test_held_out_surprise_is_told_in_nats_of_all_channels(study: Study):
    scores = {"innovation_nll.prbs": -0.8, "innovation_nll_oracle": -0.85}
    assert surprise.held_out_text(study, scores, "prbs") == ", held out 0.4"


# The evidence bound.


def test_terms_of_the_bound_are_medians_of_each_arm(study: Study):
    metrics = {name: np.arange(3.0) + place for place, name in enumerate(learning.ELBO_PANELS)}
    figure = learning.draw_elbo(study, recorded(study, **metrics))
    for place, axes in enumerate(figure.axes):
        for arm in study.arms:
            (line,) = lines_of(axes, arm)
            np.testing.assert_allclose(line.get_ydata(), np.arange(3) + place + 0.25)
