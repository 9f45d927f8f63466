"""Every figure of every run, and what the curves over transitions show."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.figures import curves, innovations, parts, plane
from quatrain.models.active_dynamics.figures.study import Study, information_at_checkpoints
from quatrain.models.active_dynamics.plots import plots
from quatrain.progress import History
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import RUNS, named, studied

ALWAYS = {"learning_curve", "information", "innovation", "calibration", "horizon", "actions"}
ALWAYS |= {"misfit"}
PLANE = {"field", "uncertainty", "portraits"}
ARMS = ("random", "active", "prbs")


QUICK = ("one arm on a line", "seq_vae")


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in RUNS if name not in QUICK)],
)
def test_every_figure_is_drawn_for_every_run(name: str):
    done = named(name)
    with shapes_unchecked():
        figures = plots(done.config, done.state, done.dataset, done.history, done.scores)
    in_the_plane = name not in ("one arm on a line", "space")
    bound = {"elbo"} if name in ("seq_vae", "ensemble") else set()
    assert set(figures) == ALWAYS | bound | (PLANE if in_the_plane else set())
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert "nan" not in " ".join([*texts, *titles]), drawn


@pytest.mark.parametrize("failed", [0.0, np.inf])
def test_errors_of_a_learner_that_failed_have_a_colour_scale_too(failed: float):
    """A learned field that no longer depends on its weights is expected to have no error."""
    scale = plane.error_scale(np.array([failed, failed, 1e-40, 0.5, 2.0]))
    assert scale.vmax == 2
    assert scale.inverse(0.5) > 1e-3
    assert plane.error_scale(np.full(3, failed)).inverse(0.5) > 0


@pytest.fixture(scope="module")
def study() -> Study:
    return studied("six replicates")


REFERENCES = {
    "zero_field": 1.0,
    "affine_field": 0.43,
    "projection_floor": 1e-3,
    "teleport_reference": 0.01,
}


@pytest.mark.parametrize(
    ("ratio", "title"),
    [
        (2.5, "need 2.5 times fewer transitions than random ones, of 60"),
        (0.4, "need 2.5 times more transitions than random ones, of 60"),
        (1.04, "need as many transitions as random ones, of 60"),
        (0.96, "need as many transitions as random ones, of 60"),
    ],
)
def test_the_title_says_how_much_sooner(study: Study, ratio: float, title: str):
    scores = {"transition_ratio.random": ratio}
    assert curves.headline(study, scores) == f"For the same error, planned actions {title}"


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
    nrmse = np.repeat(np.array([random, active, active]).T, 6, 1)
    drawn = study._replace(estimate=study.estimate._replace(nrmse=nrmse))
    scores = {"transition_ratio.random": 2.0} | REFERENCES
    (axes,) = curves.draw_learning_curve(drawn, scores).axes
    arrows = [item for item in axes.texts if getattr(item, "arrow_patch", None)]
    level = max(random[-1], active[-1])
    expected = [] if ends is None else [((ends[1], level), (ends[0], level))]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [
        (pytest.approx(first), pytest.approx(last)) for first, last in expected
    ]
    assert [item.get_text() for item in axes.texts if "times" in item.get_text()] == (
        [] if text is None else [text]
    )
    for place, arm in enumerate(ARMS):
        (line,) = (line for line in axes.lines if line.get_color() == parts.COLORS[arm])
        np.testing.assert_allclose(
            line.get_xydata(), np.c_[study.steps, [random, active, active][place]]
        )


def test_without_a_ratio_the_title_has_the_errors(study: Study):
    errors = {"field_nrmse.random": 2.25, "field_nrmse.active": 0.25, "field_nrmse.prbs": 0.5}
    title = "Error of the field after 60 transitions: random 2.2, active 0.25, prbs 0.5"
    assert curves.headline(study, errors | {"transition_ratio.random": np.nan}) == title


def test_without_an_active_arm_the_title_has_the_errors():
    title = curves.headline(studied("one arm on a line"), {"field_nrmse.step": 0.25})
    assert title == "Error of the field after 60 transitions: step 0.25"


@pytest.mark.parametrize("replicates", [1, 3, 5])
def test_replicates_too_few_for_an_interval_are_lines_without_a_band(replicates: int):
    values = np.arange(replicates)[:, None] + np.zeros(4)
    axes = Figure().subplots()
    median = parts.median_with_band(axes, np.arange(4), values, color="red")
    assert not axes.collections
    assert [line.get_ydata()[0] for line in axes.lines] == list(range(replicates))
    assert median.tolist() == [(replicates - 1) / 2] * 4
    if replicates > 1:
        assert parts.explain_lines(replicates) == f"A line for each of {replicates} replicates."


# Information and innovations.


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


def test_surprise_above_the_oracle_is_summed_over_transitions_and_channels(study: Study):
    oracle = np.random.default_rng(1).normal(size=(18, 60))
    nll = oracle.reshape(18, 3, 20).mean(2) + 0.25
    steps = [20, 40, 60]
    history = recorded(steps, information_gained=np.ones(3), innovation_nll=np.zeros(3))
    for place in range(6):
        history[f"innovation_nll.active/seed/{place}"] = (np.array(steps), nll[6 + place])
    cost = innovations.excess_cost(study, history, oracle, "active")
    np.testing.assert_allclose(cost.paid, np.full((6, 3), 0.25 * 8 * np.array(steps)))
    np.testing.assert_allclose(cost.rate, 0.25 * 8)
