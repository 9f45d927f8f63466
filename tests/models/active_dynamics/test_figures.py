"""Numbers that figures show: maps, undriven paths, intervals, visits, the oracle."""

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics.bayes_filter.filter import Filter
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.evaluate import FieldEstimate
from quatrain.models.active_dynamics.figures import actions, curves, innovations, plane
from quatrain.models.active_dynamics.figures.plane import Chart
from quatrain.models.active_dynamics.figures.study import Study, undriven_paths
from quatrain.models.active_dynamics.learner import AffineAlignment
from quatrain.models.active_dynamics.network import make_rbf
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.small_trials import configured, run, studied


@pytest.fixture(scope="module")
def study() -> Study:
    return studied("default")


@pytest.fixture(scope="module")
def chart(study: Study) -> Chart:
    return plane.make_chart(study)


# Maps.


def test_charts_go_by_x1_first_and_agree_with_the_scored_error(study: Study, chart: Chart):
    for i, j in ((0, 7), (30, 11), (48, 48)):
        x = torch.tensor([[chart.axis[i], chart.axis[j]]])
        np.testing.assert_allclose(chart.true[i, j], study.training.world.field(x)[0], rtol=1e-5)
        variance = study.training.learner.moments(x.expand(4, 1, 2)).variance
        np.testing.assert_allclose(chart.variance[:, i, j], variance[:, 0])
    inside = chart.within(study.radius)
    size = np.sqrt(np.square(chart.error(2)[inside]).sum() / np.square(chart.true[inside]).sum())
    assert size == pytest.approx(study.estimate.nrmse[-1, 2], rel=0.05)


# Paths.


def test_paths_and_charts_follow_the_fields_in_true_coordinates(
    study: Study, monkeypatch: pytest.MonkeyPatch
):
    """Learners whose states z mean x = turn z + shift have fields of z."""
    turn, shift = np.array([[0.0, 2.0], [-1.0, 0.5]]), np.array([0.3, -0.2])
    alignment = AffineAlignment(
        torch.tensor(turn).repeat(4, 1, 1), torch.tensor(shift).repeat(4, 1)
    )
    monkeypatch.setattr(BayesFilterLearner, "alignment", lambda *_: alignment)
    rbf = make_rbf(study.config.network.rbf, 2).to(torch.float64)
    weights = study.training.learner.belief.mean[3, 2:].view(2, -1)

    def velocity(x: np.ndarray) -> np.ndarray:
        z = torch.tensor((x - shift) @ np.linalg.inv(turn).T)
        return (rbf.features(z) @ weights.T).numpy() @ turn.T

    x = true = np.array([[0.5, 0.25], [-1.0, 0.75], [0.0, 1.25]])
    paths = undriven_paths(study, x, 4)
    for time in range(5):
        np.testing.assert_allclose(paths.true[time], true, atol=1e-5)
        np.testing.assert_allclose(paths.learned[3, time], x, atol=1e-5)
        true = true + 0.1 * study.training.world.field(torch.tensor(true).float()).numpy()
        x = x + 0.1 * velocity(x)
    chart = plane.make_chart(study)
    place = np.array([[chart.axis[5], chart.axis[31]]])
    np.testing.assert_allclose(chart.mean[3, 5, 31], velocity(place)[0], atol=1e-5)


def test_distances_count_until_the_true_path_leaves_the_region(study: Study):
    """The first path leaves and comes back."""
    x1 = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [1.0, 1.0]])
    true = np.stack([x1, np.zeros_like(x1)], 2)
    learned = true.copy()
    learned[1] += [3.0, 4.0]
    learned[2:, 0] += 100.0
    assert plane.path_distance(study, true, learned) == pytest.approx(np.sqrt(50 / 6))


# Intervals and horizons.


def test_coverage_is_the_share_within_normal_intervals(study: Study):
    """With errors of 1 and 2: 65 % are within 0.93, 70 % within 1.04, 95 % within 1.96."""
    mean = np.repeat(study.dataset.held_out.grid_field[None] + np.array([1.0, 2.0]), 4, 0)
    estimate = FieldEstimate(mean, np.ones(mean.shape), study.estimate.nrmse)
    shares = curves.coverage(study._replace(estimate=estimate))
    places = [int(np.argmin(np.abs(curves.NOMINAL - level))) for level in (0.65, 0.7, 0.95)]
    assert shares[:, places].tolist() == [[0.0, 0.5, 0.5]] * 4


def test_horizons_have_r2_as_nines():
    assert curves.nines(np.array([-9.0, 0, 0.9, 0.99])) == pytest.approx([-1, 0, 1, 2])
    assert np.isfinite(curves.nines(np.ones(1))).all()


# Actions.


def test_time_is_spent_in_cells_by_x1_first():
    edges = np.array([-1.0, 0.0, 1.0])
    path = np.array([[[-0.5, 0.5], [-0.5, 0.5], [0.5, 0.5], [5.0, 0.0]]])
    assert actions.visit_shares(path, edges).tolist() == [[[0.0, 0.5], [0.0, 0.25]]]


def test_a_learner_that_stays_in_one_cell_visited_one_of_those_in_the_region(study: Study):
    middle = np.linspace(-1.4, 1.4, 15)
    inside = int((np.hypot(middle[:, None], middle) <= 1.5).sum())
    still = study._replace(path=np.zeros_like(study.path))
    assert actions.visited_share(still, "active") == pytest.approx(1 / inside)


# The oracle.


def test_the_oracle_is_a_kalman_filter_of_the_true_field():
    """Whose state is from the prior again after an episode; it does not see how the next begins."""
    matrix = [[-0.5, -1.0], [1.0, -0.5]]
    env = {"field": {"kind": "linear", "matrix": matrix, "normalise": "none"}}
    result = run(configured(env=env | {"episode_transitions": 25}, train={"transitions": 40}))
    study, replay, row = result.study, result.state.replay, 3
    channels, whirl = study.training.world.emission.double(), torch.tensor(matrix).double()
    y = torch.tensor(result.dataset.train.observations[1, 0]).double()
    belief = filters.corrected(channels, y, filters.nothing(2))
    exact = filters.surprises(
        Filter(study.training.learner.filter.rbf, channels, 0.1, 0.01),
        lambda x: whirl @ x,
        belief,
        (replay.actions[row, :40].double(), replay.observations[row, :40].double()),
        {24: filters.nothing(2)},
    )
    oracle = innovations.oracle_nll(study)
    np.testing.assert_allclose(oracle[row], torch.stack(exact), atol=2e-3)
    for arm in study.arms:
        cost = innovations.excess_cost(study, result.history, oracle, arm)
        assert (cost.paid[:, -1] > 0).all(), "Not knowing the field costs nothing."
