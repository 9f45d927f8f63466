"""Every figure of every run, the numbers that they show, and what their titles say."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.bayes_filter.filter import Filter
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.figures import actions, curves, innovations, parts, plane
from quatrain.models.active_dynamics.figures import study as studies
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.models.active_dynamics.learner import AffineAlignment
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.plots import plots
from quatrain.progress import History
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.small_trials import RUNS, configured, named, run, studied

ALWAYS = {"learning_curve", "information", "innovation", "horizon", "actions"}
ALWAYS |= {"misfit"}
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


# Curves over transitions.

SOONER = "For the same error, planned actions need"
ERRORS = {"random": 2.25, "active": 0.25, "prbs": 0.5}


@pytest.mark.parametrize(
    ("ratio", "title"),
    [
        (2.5, f"{SOONER} 2.5 times fewer transitions than random ones, of 60"),
        (0.4, f"{SOONER} 2.5 times more transitions than random ones, of 60"),
        (1.04, f"{SOONER} as many transitions as random ones, of 60"),
        (0.96, f"{SOONER} as many transitions as random ones, of 60"),
        (np.nan, "Error of the field after 60 transitions: random 2.2, active 0.25, prbs 0.5"),
    ],
)
def test_the_title_says_how_much_sooner_or_has_the_errors(study: Study, ratio: float, title: str):
    scores = {f"field_nrmse.{arm}": error for arm, error in ERRORS.items()}
    assert curves.headline(study, scores | {"transition_ratio.random": ratio}) == title


def test_without_an_active_arm_the_title_has_the_errors():
    title = curves.headline(studied("one arm on a line"), {"field_nrmse.step": 0.25})
    assert title == "Error of the field after 60 transitions: step 0.25"


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
    scores |= {"teleport_reference": 0.01, "transition_ratio.random": 2.0}
    (axes,) = curves.draw_learning_curve(drawn, scores).axes
    arrows = [item for item in axes.texts if getattr(item, "arrow_patch", None)]
    level = max(random[-1], active[-1])
    expected = [] if ends is None else [((ends[1], level), (ends[0], level))]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [
        (pytest.approx(first), pytest.approx(last)) for first, last in expected
    ]
    texts = [item.get_text() for item in axes.texts if "times" in item.get_text()]
    assert texts == ([] if text is None else [text])
    for arm, values in zip(ARMS, (random, active, active), strict=True):
        (line,) = (line for line in axes.lines if line.get_color() == parts.COLORS[arm])
        np.testing.assert_allclose(line.get_xydata(), np.c_[study.steps, values])


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
    inside = chart.within(study.radius)
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


# Horizons and actions.


def test_horizons_have_r2_as_nines():
    assert curves.nines(np.array([-9.0, 0, 0.9, 0.99])) == pytest.approx([-1, 0, 1, 2])
    assert np.isfinite(curves.nines(np.ones(1))).all()


def test_time_is_spent_in_cells_by_x1_first(study: Study):
    """A learner that stays in one cell visited one of those in the region."""
    edges = np.array([-1.0, 0.0, 1.0])
    path = np.array([[[-0.5, 0.5], [-0.5, 0.5], [0.5, 0.5], [5.0, 0.0]]])
    assert actions.visit_shares(path, edges).tolist() == [[[0.0, 0.5], [0.0, 0.25]]]
    middle = np.linspace(-1.4, 1.4, 15)
    inside = int((np.hypot(middle[:, None], middle) <= 1.5).sum())
    still = study._replace(path=np.zeros_like(study.path))
    assert actions.visited_share(still, "active") == pytest.approx(1 / inside)


# Information and innovations.


def recorded(steps: list[int], **metrics: np.ndarray) -> History:
    """Returns records of all arms with an offset of 0.1 by replicate."""
    records: dict[str, Any] = {}
    for name, values in metrics.items():
        for arm in ARMS:
            records[f"{name}.{arm}"] = (np.array(steps), values)
            for place in range(REPLICATES):
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
    points = studies.information_at_checkpoints(study, history, "prbs")
    assert (points.steps.tolist(), points.records.tolist()) == (checkpoints, records)
    np.testing.assert_allclose(points.values[:, 0], 1 + np.arange(REPLICATES) / 10)


def test_surprise_above_the_oracle_is_summed_over_transitions_and_channels(study: Study):
    oracle = np.random.default_rng(1).normal(size=(LEARNERS, 60))
    nll = oracle.reshape(LEARNERS, 3, 20).mean(2) + 0.25
    steps = [20, 40, 60]
    history = recorded(steps, information_gained=np.ones(3), innovation_nll=np.zeros(3))
    for place in range(REPLICATES):
        history[f"innovation_nll.active/seed/{place}"] = (np.array(steps), nll[6 + place])
    cost = innovations.excess_cost(study, history, oracle, "active")
    np.testing.assert_allclose(cost.paid, np.full((6, 3), 0.25 * 8 * np.array(steps)))
    np.testing.assert_allclose(cost.rate, 0.25 * 8)


def test_the_oracle_is_a_kalman_filter_of_the_true_field():
    """Whose state is from the prior again after an episode; it does not see how the next begins."""
    matrix = [[-0.5, -1.0], [1.0, -0.5]]
    env = {"field": {"kind": "linear", "matrix": matrix, "normalise": "none"}}
    result = run(configured(env=env | {"episode_transitions": 25}, train={"transitions": 40}))
    study, replay, row = result.study, result.state.replay, 3
    channels, whirl = study.training.world.emission.double(), torch.tensor(matrix).double()
    y = torch.tensor(result.dataset.train.observations[1, 0]).double()
    exact = filters.surprises(
        Filter(study.training.learner.filter.rbf, channels, 0.1, 0.01),
        lambda x: whirl @ x,
        filters.corrected(channels, y, filters.nothing(2)),
        (replay.actions[row, :40].double(), replay.observations[row, :40].double()),
        {24: filters.nothing(2)},
    )
    oracle = innovations.oracle_nll(study)
    np.testing.assert_allclose(oracle[row], torch.stack(exact), atol=2e-3)
    for arm in study.arms:
        cost = innovations.excess_cost(study, result.history, oracle, arm)
        assert (cost.paid[:, -1] > 0).all(), "Not knowing the field costs nothing."
