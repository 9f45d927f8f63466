"""Scores of learners whose weights are set by hand, so that they are known in advance."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.fields import make_field
from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import HORIZONS, FieldEstimate, calibration, evaluate
from quatrain.models.active_dynamics.family import AffineAlignment, Moments
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.references import reference_errors, teleport_reference
from quatrain.models.active_dynamics.state import State
from quatrain.statistics import Interval
from tests.conftest import params_with, shapes_unchecked
from tests.models.active_dynamics.small_trials import configured, named

FINE = {"rbf": {"side": 9, "length": 0.6}}


def features(config: ActiveDynamicsConfig, x: Any) -> Tensor:
    return make_rbf(config.network.rbf, config.env.d).features(torch.as_tensor(x).double())


class Case:
    """Holds learners before the first transition, whose weights can be set."""

    def __init__(self, **sections: Any) -> None:
        self.config = configured(**sections)
        self.dataset = collect(self.config, 3)
        self.state = train.init_state(self.config, self.dataset, 0)

    @property
    def best_weights(self) -> Tensor:
        """Returns weights [d, feature] fitted on the grid."""
        grid, field = self.dataset.held_out.grid, self.dataset.held_out.grid_field
        phi = features(self.config, grid)
        return torch.linalg.lstsq(phi, torch.tensor(field).double()).solution.T

    def with_weights(self, weight: Tensor) -> State:
        """Returns the state of learners that have these weights now and at all checkpoints."""
        mean = self.state.params.mean.clone()
        mean[:, len(weight) :] = weight.flatten()
        snapshots = self.state.snapshots["weight"]
        return self.state._replace(
            params=self.state.params._replace(mean=mean),
            snapshots={"weight": weight.float().expand_as(snapshots).clone()},
            transitions=torch.tensor(10**6),
        )

    def scores(self, weight: Tensor) -> dict[str, float]:
        return self.evaluate(self.with_weights(weight))

    def evaluate(self, state: State) -> dict[str, float]:
        with shapes_unchecked():
            return evaluate(self.config, state, self.dataset, 0).scores


# The field.


def test_the_best_weights_score_the_projection_floor():
    case = Case()
    scores = case.scores(case.best_weights)
    floor = scores["projection_floor"]
    assert 0.01 < floor < scores["affine_field"] < scores["zero_field"] == 1
    for arm in case.config.train.arms:
        assert scores[f"field_nrmse.{arm}"] == pytest.approx(floor, rel=1e-4)
        assert scores[f"displacement_r2_1.{arm}"] > 0.99


def test_a_turned_and_shifted_learner_has_the_same_scores(monkeypatch: pytest.MonkeyPatch):
    """One with the states z of x = TURN z + SHIFT."""
    case, learner = Case(seeds=1), BayesFilterLearner
    state, scores = case.with_weights(0.7 * case.best_weights), []
    scores.append(case.evaluate(state))
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    shift = torch.tensor([0.4, -0.2]).double()
    alignment = AffineAlignment(turn.expand(2, 2, 2), shift.expand(2, 2))
    drift, moments = learner.drift, learner.moments

    def latent_drift(self: Any, weights: Any, z: Tensor) -> Tensor:
        return drift(self, weights, (z.double() @ turn.T + shift).to(z.dtype)) @ turn.to(z.dtype)

    def latent_moments(self: Any, z: Tensor) -> Moments:
        mean, variance = moments(self, z @ turn.T + shift)
        return Moments(mean @ turn, variance.flip(2))

    monkeypatch.setattr(learner, "alignment", lambda *_: alignment)
    monkeypatch.setattr(learner, "drift", latent_drift)
    monkeypatch.setattr(learner, "moments", latent_moments)
    scores.append(case.evaluate(state))
    for prefix in ("field", "coverage", "calibration", "displacement", "position"):
        for name in (name for name in scores[0] if name.startswith(prefix)):
            assert scores[1][name] == pytest.approx(scores[0][name], rel=1e-4), name


# References.


@pytest.mark.parametrize(
    ("field", "affine", "projection"),
    [
        ({"kind": "snowman"}, 0.88, 0.041),
        ({"kind": "linear", "matrix": [[-0.5, -1.0], [1.0, -0.5]]}, 1.0, 0.00075),
    ],
)
def test_floors_of_the_committed_grid(field: dict[str, Any], affine: float, projection: float):
    """The best affine field is no floor of an affine field."""
    config = params_with({"active_dynamics": {"env": {"field": field}}}).active_dynamics
    held_out = named("default").dataset.held_out
    truth = make_field(config.env, torch.Generator())(torch.tensor(held_out.grid))
    held_out = held_out._replace(grid_field=truth.numpy())
    errors = reference_errors(config, named("default").dataset._replace(held_out=held_out))
    assert errors["zero_field"] == 1
    assert errors["affine_field"] == pytest.approx(affine, abs=0.005)
    assert errors["projection_floor"] == pytest.approx(projection, rel=0.05, abs=5e-5)


# Predictions.


def test_predictions_are_paths_of_the_mean_field_until_the_true_ones_leave_the_region():
    effect = np.array([[0.0, 4.0], [2.0, 1.0]])
    case = Case(env={"control": effect.tolist()}, train={"arms": ("random",)}, seeds=1)
    weight = 0.7 * case.best_weights
    scores, held_out = case.scores(weight), case.dataset.held_out
    paths: dict[int, list[Any]] = {k: [] for k in HORIZONS}
    for start, actions, truth in zip(
        held_out.starts, held_out.start_actions, held_out.clean_states, strict=True
    ):
        x, pushed = start.astype(float), np.zeros(2)
        for k, action in enumerate(actions, 1):
            x = x + 0.1 * (weight.numpy() @ features(case.config, x).numpy() + effect @ action)
            pushed = pushed + 0.1 * effect @ action
            if np.linalg.norm(truth[k]) > 1.5:
                break
            if k in HORIZONS:
                paths[k].append((x, truth[k], start + pushed))
    assert 8 == len(paths[1]) > len(paths[10]) > 1
    for k in HORIZONS:
        x, true, carried = (np.array(part) for part in zip(*paths[k], strict=True))
        error, moved = ((x - true) ** 2).sum(), ((true - carried) ** 2).sum()
        assert scores[f"displacement_r2_{k}.random"] == pytest.approx(1 - error / moved, rel=1e-4)
        if len(true) > 1:
            spread = ((true - true.mean(0)) ** 2).sum()
            assert scores[f"position_r2_{k}.random"] == pytest.approx(1 - error / spread, rel=1e-4)


# Uncertainty.


@pytest.mark.parametrize(
    ("deviation", "coverage", "distance"),
    [(0.3, 0.9, 0.0), (0.15, 0.5892, 0.2151), (0.6, 0.99899, 0.2257)],
)
def test_calibration_of_normal_errors(deviation: float, coverage: float, distance: float):
    """Of a deviation of 0.3: it is right, too small, too large."""
    truth, error = np.random.default_rng(0).normal(size=(2, 1, 5000, 2))
    held_out = named("default").dataset.held_out._replace(grid_field=truth[0])
    variance = np.full(error.shape, deviation**2)
    result = calibration(
        FieldEstimate(truth + 0.3 * error, variance, np.zeros((1, 1)), variance[..., 0]), held_out
    )
    assert result["coverage_90"][0] == pytest.approx(coverage, abs=0.01)
    assert result["calibration"][0] == pytest.approx(distance, abs=0.01)
    square = (0.3 * error) ** 2 / variance
    expected = 0.5 * (square.mean() + np.log(2 * np.pi * deviation**2))
    assert result["field_nlpd"][0] == pytest.approx(expected)


def test_the_reference_is_the_mean_error_of_regression_on_exact_velocities():
    """Drawn many times; it falls with transitions, and not below the floor of the features."""
    visits, draws = 2, torch.Generator().manual_seed(0)
    config = configured(network=FINE, train={"transitions": visits * 709})
    dataset = collect(config, 0)
    held_out = dataset.held_out
    grid, field = (torch.tensor(part).double() for part in (held_out.grid, held_out.grid_field))
    noise = config.env.process_noise / config.env.dt
    phi = features(config, grid).repeat(visits, 1)
    prior = 1 / float(features(config, grid).square().sum(1).mean())
    gain = torch.linalg.inv(phi.T @ phi / noise + torch.eye(phi.shape[1]).double() / prior)
    squares = []
    for _ in range(200):
        errors = torch.randn(len(phi), 2, generator=draws, dtype=torch.float64)
        y = field.repeat(visits, 1) + noise**0.5 * errors
        error = features(config, grid) @ (gain @ (phi.T @ y) / noise) - field
        squares.append(float(error.square().sum() / field.square().sum()))
    at_once = teleport_reference(config, held_out)
    assert at_once == pytest.approx(np.mean(squares) ** 0.5, rel=0.02)
    fewer = teleport_reference(configured(network=FINE), held_out)
    floor = reference_errors(config, dataset)["projection_floor"]
    assert floor < at_once < fewer


# All together.


def test_scores_are_medians_of_an_arm_with_order_statistics(monkeypatch: pytest.MonkeyPatch):
    """Of learners that know shares of the best field; their ratio and its interval are given."""
    name = "quatrain.models.active_dynamics.evaluate.ratio_interval"
    monkeypatch.setattr(name, lambda *_: Interval(1.0, 2.0))
    case = Case(seeds=6)
    state, shares = case.with_weights(case.best_weights), torch.linspace(0.1, 0.9, 12)
    state.snapshots["weight"].mul_(shares[:, None, None])
    scores = case.evaluate(state)
    for arm, place in zip(case.config.train.arms, (0, 6), strict=True):
        errors = [1 - float(share) for share in shares[place : place + 6]]
        ends = scores[f"field_nrmse.{arm}_high"], scores[f"field_nrmse.{arm}_low"]
        assert scores[f"field_nrmse.{arm}"] == pytest.approx(np.median(errors), abs=0.02)
        assert ends == pytest.approx((errors[0], errors[-1]), abs=0.02)
    ratio = "transition_ratio.random"
    assert (scores[f"{ratio}_low"], scores[f"{ratio}_high"]) == (1.0, 2.0)
