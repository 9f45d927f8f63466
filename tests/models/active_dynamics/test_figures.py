"""Figures of a learned field: maps, paths, intervals, horizons, actions, the oracle."""

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.evaluate import HORIZONS, FieldEstimate
from quatrain.models.active_dynamics.figures import actions, calibration, horizon, plane, surprise
from quatrain.models.active_dynamics.figures.parts import COLORS
from quatrain.models.active_dynamics.figures.plane import Chart
from quatrain.models.active_dynamics.figures.study import Study, undriven_paths
from quatrain.models.active_dynamics.learner import AffineAlignment
from quatrain.models.active_dynamics.network import make_rbf
from tests.models.active_dynamics.small_runs import Run, named, run, studied

LINEAR = [[-0.5, -1.0], [1.0, -0.5]]


@pytest.fixture
def plain() -> Run:
    return named("as it is")


@pytest.fixture(scope="module")
def study() -> Study:
    return studied("as it is")


@pytest.fixture(scope="module")
def chart(study: Study) -> Chart:
    return plane.make_chart(study)


def with_error(error: np.ndarray, study: Study, sd: float = 1.0) -> Study:
    """Returns the same learners, each with this error."""
    mean = np.repeat(study.dataset.held_out.grid_field[None] + error, study.config.learners, 0)
    return study._replace(
        estimate=FieldEstimate(mean, np.full(mean.shape, sd**2), study.estimate.nrmse)
    )


def test_the_typical_row_has_the_median_error_of_its_arm(study: Study):
    errors = np.array([[0.5, 0.3, 0.9, 0.1, 0.7, 0.2]])
    config = study.config.model_copy(update={"seeds": 3})
    three = study._replace(config=config, estimate=study.estimate._replace(nrmse=errors))
    assert [three.median_learner(arm) for arm in ("active", "random")] == [0, 5]


@pytest.mark.parametrize(
    ("arms", "pair"),
    [
        (("prbs", "random", "active"), ("active", "random")),
        (("prbs", "step"), ("prbs", "step")),
        (("active", "chirp", "off"), ("active", "chirp")),
        (("random",), ("random",)),
    ],
)
def test_maps_are_of_the_active_arm_and_a_plain_one(
    study: Study, arms: tuple[str, ...], pair: tuple[str, ...]
):
    train = study.config.train.model_copy(update={"arms": arms})
    assert study._replace(config=study.config.model_copy(update={"train": train})).pair == pair


# Maps.


def test_charts_go_by_x1_first(study: Study, chart: Chart):
    for i, j in ((0, 7), (30, 11), (48, 48)):
        x = torch.tensor([[chart.axis[i], chart.axis[j]]])
        np.testing.assert_allclose(chart.true[i, j], study.training.world.field(x)[0], rtol=1e-5)
        result = study.training.learner.moments(x.expand(4, 1, 2))
        np.testing.assert_allclose(chart.mean[:, i, j], result.mean[:, 0])
        np.testing.assert_allclose(chart.variance[:, i, j], result.variance[:, 0])


def test_charts_agree_with_what_is_judged(study: Study, chart: Chart):
    middle, origin = plane.SIDE // 2, np.flatnonzero((study.dataset.held_out.grid == 0).all(1))
    np.testing.assert_allclose(
        chart.mean[:, middle, middle], study.estimate.mean[:, origin[0]], atol=1e-12
    )
    inside = chart.within(study.radius)
    size = np.sqrt(np.square(chart.error(2)[inside]).sum() / np.square(chart.true[inside]).sum())
    assert size == pytest.approx(study.estimate.nrmse[-1, 2], rel=0.05)


def test_errors_are_lengths_of_vectors():
    field = np.zeros((1, 1, 2))
    chart = Chart(np.zeros(1), field, field[None] + [3.0, 4.0], field[None] + [0.25, 2.0])
    assert chart.error(0).tolist() == [[5.0]]
    assert chart.expected_error(0).tolist() == [[1.5]]


def test_believed_and_true_errors_are_beside_each_other_on_one_scale(study: Study, chart: Chart):
    figure = plane.draw_uncertainty(study, chart)
    maps = [axes.collections[0] for axes in figure.axes[:4]]
    for place, arm in enumerate(("active", "random")):
        row = study.median_learner(arm)
        np.testing.assert_array_equal(maps[2 * place].get_array(), chart.expected_error(row).T)
        np.testing.assert_array_equal(maps[2 * place + 1].get_array(), chart.error(row).T)
        np.testing.assert_array_equal(
            figure.axes[2 * place].collections[1].get_offsets(), study.path[row]
        )
    assert len({(mesh.norm.vmin, mesh.norm.vmax) for mesh in maps}) == 1


def test_arrows_are_what_is_added_to_the_true_field(study: Study, chart: Chart):
    arrows = plane.draw_field(study, chart).axes[2].collections[-1]
    x, y = (np.searchsorted(chart.axis, place - 1e-9) for place in (arrows.X, arrows.Y))
    added = chart.mean[study.median_learner("active")] - chart.true
    np.testing.assert_allclose(np.column_stack([arrows.U, arrows.V]), added[x, y])
    assert (np.hypot(arrows.X, arrows.Y) <= study.radius).all()


# Paths.


def test_undriven_paths_are_steps_of_the_true_and_of_the_learned_field(study: Study):
    starts = np.array([[0.5, 0.25], [-1.0, 0.75], [0.0, 1.25]])
    result = undriven_paths(study, starts, 4)
    assert result.true.shape == (5, 3, 2)
    assert result.learned.shape == (4, 5, 3, 2)
    x, z = torch.tensor(starts).float(), torch.tensor(starts).float()
    weight, rbf = study.training.learner.weights["weight"][3], make_rbf(study.config.network.rbf, 2)
    for _ in range(4):
        x = x + study.training.world.field(x) * study.config.env.dt
        z = z + rbf.features(z) @ weight.T * study.config.env.dt
    np.testing.assert_allclose(result.true[-1], x, atol=1e-5)
    np.testing.assert_allclose(result.learned[3, -1], z, atol=1e-5)


TURN, SHIFT = np.array([[0.0, 2.0], [-1.0, 0.5]]), np.array([0.3, -0.2])


@pytest.fixture
def turned(study: Study, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Learners whose states z are to be read as x = TURN z + SHIFT."""
    result = AffineAlignment(*(torch.tensor(part).expand(4, *part.shape) for part in (TURN, SHIFT)))
    monkeypatch.setattr(BayesFilterLearner, "alignment", lambda _self, _weights, _held_out: result)
    return study


def of_row_1(study: Study, z: np.ndarray) -> np.ndarray:
    """Computes dz/dt."""
    features = make_rbf(study.config.network.rbf, 2).features(torch.tensor(z).float())
    return (features @ study.training.learner.weights["weight"][1].T).double().numpy()


def test_learned_paths_and_charts_are_in_the_true_gauge(turned: Study):
    x = np.array([[0.5, 0.25], [-1.0, 0.75]])
    velocity = of_row_1(turned, (x - SHIFT) @ np.linalg.inv(TURN).T) @ TURN.T
    result = undriven_paths(turned, x, 1).learned[1]
    np.testing.assert_allclose(result[0], x)
    np.testing.assert_allclose(result[1], x + 0.1 * velocity, atol=1e-5)
    chart = plane.make_chart(turned)
    place = np.array([[chart.axis[5], chart.axis[31]]])
    velocity = of_row_1(turned, (place - SHIFT) @ np.linalg.inv(TURN).T) @ TURN.T
    np.testing.assert_allclose(chart.mean[1, 5, 31], velocity[0], atol=1e-5)


def test_learned_channels_lead_to_paths_near_the_true_ones():
    study = studied("learned channels")
    starts = plane.fan_starts(study)
    result = undriven_paths(study, starts, 3)
    moved = np.linalg.norm(result.true[-1] - starts, axis=1).mean()
    assert np.linalg.norm(result.learned[:, -1] - result.true[-1], axis=2).mean() < moved


def test_distances_count_until_the_true_path_leaves_the_region(study: Study):
    x1 = np.array(
        [[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [1.0, 1.0]]
    )  # the first path leaves, and comes back
    true = np.stack([x1, np.zeros_like(x1)], 2)
    off = np.zeros_like(true)
    off[1], off[2:, 0] = [3.0, 4.0], 100.0
    learned = true + off
    assert plane.path_distance(study, true, learned) == pytest.approx(np.sqrt(50 / 6))


# Intervals and horizons.


def test_coverage_is_the_share_within_intervals_of_a_normal_law(study: Study):
    shares = calibration.coverage(with_error(np.array([1.0, 2.0]), study))
    shares_by_level = dict(zip(calibration.NOMINAL.round(2).tolist(), shares.T, strict=True))
    assert shares_by_level[0.65].tolist() == [0.0] * 4  # ±0.93 sd
    assert shares_by_level[0.7].tolist() == [0.5] * 4  # ±1.04 sd
    assert shares_by_level[0.95].tolist() == [0.5] * 4  # ±1.96 sd
    wider = calibration.coverage(with_error(np.array([1.0, 2.0]), study, sd=1.1))
    assert wider[:, -1].tolist() == [1.0] * 4


def test_the_calibration_curve_passes_the_scored_coverage(plain: Run, study: Study):
    (axes,) = calibration.draw_calibration(study).axes
    for arm in study.arms:
        (dot,) = (
            line
            for line in axes.lines
            if line.get_color() == COLORS[arm] and line.get_marker() == "o"
        )
        assert float(dot.get_xdata()[0]) == pytest.approx(0.9)
        assert float(dot.get_ydata()[0]) == pytest.approx(plain.scores[f"coverage_90.{arm}"])


def test_the_horizon_is_the_scored_r2(study: Study):
    (axes,) = horizon.draw_horizon(study).axes
    for arm in study.arms:
        (line,) = (line for line in axes.lines if line.get_color() == COLORS[arm])
        assert tuple(line.get_xdata()) == HORIZONS
        rows = study.of_arm(arm, np.arange(4))
        scored = [
            np.median(horizon.nines(study.prediction_r2[f"displacement_r2_{k}"][rows]))
            for k in HORIZONS
        ]
        np.testing.assert_allclose(line.get_ydata(), scored)


def test_heights_of_r2_are_nines():
    assert horizon.nines(np.array([-9.0, 0, 0.9, 0.99])) == pytest.approx([-1, 0, 1, 2])
    assert np.isfinite(horizon.nines(np.ones(1))).all()


# Actions.


def test_traces_are_the_actions_one_above_the_other(study: Study):
    figure = actions.draw_actions(study)
    for axes, arm in zip(figure.axes[:3:2], study.arms, strict=True):
        traces = [line for line in axes.lines if line.get_color() == COLORS[arm]]
        done = study.training.replay.actions[study.median_learner(arm), :60]
        np.testing.assert_allclose(traces[0].get_ydata(), done[:, 0])
        np.testing.assert_allclose(traces[1].get_ydata(), done[:, 1] - actions.SPACING, rtol=1e-6)


def test_of_a_long_warm_up_only_its_end_is_shown():
    study = run(collect={"warmup": 50}).study
    (trace, *_) = (
        line
        for line in actions.draw_actions(study).axes[0].lines
        if line.get_color() == COLORS["active"]
    )
    assert trace.get_xdata().tolist() == list(range(30, 60))
    np.testing.assert_array_equal(
        trace.get_ydata(), study.actions[study.median_learner("active"), 30:, 0]
    )


def test_time_is_spent_in_cells_by_x1_first():
    edges = np.array([-1.0, 0.0, 1.0])
    path = np.array([[[-0.5, 0.5], [-0.5, 0.5], [0.5, 0.5], [5.0, 0.0]]])
    assert actions.visit_shares(path, edges).tolist() == [[[0.0, 0.5], [0.0, 0.25]]]


def test_cells_cover_the_region_and_nearly_all_states(study: Study):
    near, far = (study._replace(path=np.full_like(study.path, reach)) for reach in (0.1, 2.0))
    edges = actions.cell_edges(near)
    assert (edges[0], edges[-1], len(edges)) == pytest.approx((-1.5, 1.5, actions.CELLS + 1))
    wider = actions.cell_edges(far)
    assert wider[-1] >= 2
    np.testing.assert_allclose(np.diff(wider), np.diff(edges)[0])


def test_who_stays_in_one_cell_has_seen_one_of_the_region_s(study: Study):
    still = study._replace(path=np.zeros_like(study.path))
    middle = np.linspace(-1.4, 1.4, 15)
    inside = int((np.hypot(middle[:, None], middle) <= 1.5).sum())
    assert actions.visited_share(still, "active") == pytest.approx(1 / inside)


# The oracle.


def test_the_oracle_is_a_kalman_filter_of_the_true_field():
    changes = {"kind": "linear", "matrix": LINEAR, "normalise": "none"}
    result = run(env={"field": changes, "episode_transitions": 25}, train={"transitions": 40})
    nll, channels = surprise.oracle_nll(result.study), 8
    state, dataset = result.state, result.dataset
    weight, bias, variance = (part.astype(float) for part in dataset.emission)
    move, row = np.eye(2) + 0.1 * np.array(LINEAR), 3
    mean, spread = np.zeros(2), np.eye(2) / 3
    expected, truncated = [], state.replay.truncated[row, :40].numpy()
    y = [dataset.train.observations[1, 0], *state.replay.observations[row, :40].numpy()]
    for time in range(41):
        if time:
            mean = move @ mean + 0.1 * state.replay.actions[row, time - 1].numpy()
            spread = move @ spread @ move.T + 0.001 * np.eye(2)
        residual, total = (
            y[time] - weight @ mean - bias,
            weight @ spread @ weight.T + np.diag(variance),
        )
        square = residual @ np.linalg.solve(total, residual)
        expected.append((np.linalg.slogdet(2 * np.pi * total).logabsdet + square) / (2 * channels))
        gain = spread @ weight.T @ np.linalg.inv(total)
        mean, spread = mean + gain @ residual, spread - gain @ weight @ spread
        if time and truncated[time - 1]:
            mean, spread = np.zeros(2), np.eye(2) / 3
    np.testing.assert_allclose(nll[row], expected[1:], atol=2e-3)
    assert truncated.tolist() == [time == 24 for time in range(40)]


def test_who_does_not_know_the_field_is_more_surprised_than_the_oracle(plain: Run, study: Study):
    by_oracle = surprise.oracle_nll(study)
    for arm in study.arms:
        assert (surprise.excess_cost(study, plain.history, by_oracle, arm).paid[:, -1] > 0).all()
