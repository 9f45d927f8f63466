"""state, held-out data -> scores: error and calibration of fields, gain of active learning

Features that cannot represent the field err near the data too, where their variance says that they
know it (`near_error`); a lack of data is an error far from it, and is expected there.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from scipy.special import ndtri
from torch import Tensor

from quatrain.envs.vector_field.world import World
from quatrain.frameworks.torch import single_threaded
from quatrain.models.active_dynamics.collect import Dataset, HeldOut
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.family import FieldLearner
from quatrain.models.active_dynamics.references import oracle, reference_errors
from quatrain.models.active_dynamics.rules import GATED
from quatrain.models.active_dynamics.state import (
    State,
    TrainingState,
    checkpoint_steps,
    planned_share,
)
from quatrain.models.active_dynamics.user_env import scores as user_env_scores
from quatrain.progress import Evaluation
from quatrain.statistics import Interval, bootstrap_interval, median_interval

# Transitions after which a predicted state is compared with the true one.
HORIZONS = (1, 5, 10, 20)
# Nominal levels of the credible intervals whose coverage is measured.
LEVELS = np.arange(0.1, 0.95, 0.1)
# Metrics that are scored with a 95 % interval.
WITH_INTERVAL = {gated.metric.rsplit(".", 1)[0] for gated in GATED}
# Lower bound of errors before the logarithm, and of variances.
SMALLEST = 1e-12
# Ends of the ranges of distances to the nearest visited state.
EDGES = (0.05, 0.1, 0.2, 0.4, 0.8, np.inf)
NEAR = 0.2
# Bootstrap resamples of the replicates.
RESAMPLES = 1000


class FieldEstimate(NamedTuple):
    """Holds the field of all learners on the grid, in true coordinates.

    nrmse: its error at each checkpoint; at later ones the error now. distance: from a point to the
    nearest state that the learner visited.
    """

    mean: Float64[np.ndarray, "learner point d"]
    variance: Float64[np.ndarray, "learner point d"]
    nrmse: Float64[np.ndarray, "checkpoint learner"]
    distance: Float64[np.ndarray, "learner point"]


@single_threaded(if_small=True)
def evaluate(config: ActiveDynamicsConfig, state: Any, dataset: Any, seed: int) -> Evaluation:
    """Computes medians over the replicates of each arm, the gated ones with 95 % intervals.

    Intervals are order statistics, for at least 6 replicates. `transition_ratio.ARM` is how many
    times the transitions of the active arm ARM needs for the same median error, NaN if either ends
    no better than it began; its interval is a paired bootstrap over replicates. Those of a user's
    system: see `user_env.scores`.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return user_env_scores.evaluate(config, state, dataset)
    training = TrainingState(config, dataset, state)
    field = estimate_field(config, training.learner, state, dataset)
    columns = learner_scores(training, field, seed)
    medians = {}
    bounds: dict[str, float] = {}
    for name, column in columns.items():
        replicates = column.reshape(len(config.train.arms), -1)
        for arm, values in zip(config.train.arms, replicates, strict=True):
            medians[f"{name}.{arm}"] = float(np.median(values))
            if name in WITH_INTERVAL:
                bounds |= _bounds(f"{name}.{arm}", median_interval(values))
    for name, ratio in ratios(config, field.nrmse).items():
        medians[name] = float(ratio)
        bounds |= _bounds(name, ratio_interval(config, field.nrmse, name, seed))
    scores = medians | bounds
    scores["seeds"] = float(config.seeds)  # replicates
    share = planned_share(config, state.planned)
    if share is not None:
        scores["planned.active"] = share
    scores |= reference_errors(config, dataset)
    scores |= oracle(config, training.world, dataset.held_out)
    return Evaluation(scores, field)


def learner_scores(
    training: TrainingState, field: FieldEstimate, seed: int
) -> dict[str, Float64[np.ndarray, " learner"]]:
    """Computes the scores of each learner that do not depend on other learners."""
    held_out = training.dataset.held_out
    scores = training.learner.evaluate(held_out, seed)
    return {
        "field_nrmse": field.nrmse[-1],
        **calibration(field, held_out),
        "near_error": near_error(
            ((field.mean - held_out.grid_field) ** 2).sum(2), field.variance.sum(2), field.distance
        ),
        **predictions(training.config, training.world, training.learner, held_out),
        **{name: _array(value) for name, value in scores.items()},
        "information_gained": _array(training.information),
    }


def _bounds(name: str, interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


@torch.no_grad()
def estimate_field(
    config: ActiveDynamicsConfig, learner: FieldLearner, state: State, dataset: Dataset
) -> FieldEstimate:
    held_out = dataset.held_out
    truth = torch.tensor(held_out.grid_field).double()
    grid = torch.tensor(held_out.grid).double().expand(config.learners, -1, -1)
    errors = [
        (velocity - truth).square().sum((1, 2)) / truth.square().sum()
        for velocity in fields_while_learning(config, learner, state, held_out, grid)
    ]
    alignment = learner.alignment(learner.weights, held_out)
    field = alignment.to_field(learner.moments(alignment.to_latent(grid)))
    return FieldEstimate(
        mean=_array(field.mean),
        variance=_array(field.variance),
        nrmse=_array(torch.stack(errors).sqrt()),
        distance=nearest_distances(_array(state.path), held_out.grid),
    )


def fields_while_learning(
    config: ActiveDynamicsConfig,
    learner: FieldLearner,
    state: State | TrainingState,
    held_out: HeldOut,
    points: Float64[Tensor, "learner point d"],
) -> Iterator[Float64[Tensor, "learner point d"]]:
    """Yields the field at each checkpoint; at later ones the field now."""
    for place, step in enumerate(checkpoint_steps(config)):
        weights = learner.weights
        if step <= int(state.transitions):
            weights = {name: value[place] for name, value in state.snapshots.items()}
        alignment = learner.alignment(weights, held_out)
        drift = learner.drift(weights, alignment.to_latent(points).float())
        yield alignment.to_velocity(drift.double())


def calibration(
    field: FieldEstimate, held_out: HeldOut
) -> dict[str, Float64[np.ndarray, " learner"]]:
    """Computes how well the uncertainty of the field matches its error."""
    variance = np.maximum(field.variance, SMALLEST)
    square = (field.mean - held_out.grid_field) ** 2 / variance
    inside = [(square <= ndtri((1 + level) / 2) ** 2).mean((1, 2)) for level in LEVELS]
    return {
        "field_nlpd": ((square + np.log(2 * np.pi * variance)) / 2).mean((1, 2)),
        "coverage_90": inside[-1],
        "calibration": np.abs(np.stack(inside) - LEVELS[:, None]).mean(0),
    }


@torch.no_grad()
def predictions(
    config: ActiveDynamicsConfig, world: World, learner: FieldLearner, held_out: HeldOut
) -> dict[str, Float64[np.ndarray, " learner"]]:
    """Computes R² of states predicted from true starts, after each of HORIZONS.

    A zero field has a `displacement_r2` of 0. A path counts as long as the true one stays in the
    region; outside of it the field need not be known.
    """
    truth = torch.tensor(held_out.clean_states).double()
    push = torch.tensor(held_out.start_actions).double() @ world.control.T.double()
    inside = (truth.norm(dim=2) <= config.env.region_radius).cumprod(1).bool()
    starts = truth[:, 0].expand(config.learners, -1, -1)
    predicted = _predicted_paths(learner, held_out, starts, push, world.env.dt)
    scores = {}
    for time in HORIZONS:
        paths = inside[:, time] if inside[:, time].any() else inside[:, 0]
        final = truth[paths, time]
        pushed = push[paths, :time].sum(1) * world.env.dt
        error = (predicted[time - 1][:, paths] - final).square().sum((1, 2))
        displacement = (final - truth[paths, 0] - pushed).square().sum()
        spread = (final - final.mean(0)).square().sum()
        scores[f"displacement_r2_{time}"] = _array(1 - error / displacement)
        scores[f"position_r2_{time}"] = _array(1 - error / spread)
    return scores


def _predicted_paths(
    learner: FieldLearner,
    held_out: HeldOut,
    x: Float64[Tensor, "learner start d"],
    push: Float64[Tensor, "start time d"],
    dt: float,
) -> list[Float64[Tensor, "learner start d"]]:
    """Follows the learned field in true coordinates, where the effect of actions is known."""
    weights = learner.weights
    alignment = learner.alignment(weights, held_out)
    path = []
    for u in push.unbind(1)[: max(HORIZONS)]:
        drift = learner.drift(weights, alignment.to_latent(x).float())
        x = x + (alignment.to_velocity(drift.double()) + u) * dt
        path.append(x)
    return path


def _array(value: Tensor) -> Float64[np.ndarray, "..."]:
    return value.double().numpy(force=True)


# Errors by distance to the data.


class ByDistance(NamedTuple):
    """Holds root mean squares over grid points by range of distance; NaN where there are none."""

    error: Float64[np.ndarray, "learner range"]
    expected: Float64[np.ndarray, "learner range"]


def nearest_distances(
    path: Float[np.ndarray, "learner transition d"], grid: Float[np.ndarray, "point d"]
) -> Float64[np.ndarray, "learner point"]:
    points = torch.tensor(grid).double()
    rows = [torch.cdist(points, torch.tensor(states).double()).amin(1) for states in path]
    return torch.stack(rows).numpy(force=True)


def by_distance(
    square: Float64[np.ndarray, "learner point"],
    variance: Float64[np.ndarray, "learner point"],
    distance: Float64[np.ndarray, "learner point"],
) -> ByDistance:
    """Averages squared errors of the velocity, and its variance, over ranges of distance."""
    place = np.searchsorted(EDGES, distance)
    columns = []
    for index in range(len(EDGES)):
        inside = place == index
        count = np.where(inside.any(1), inside.sum(1), np.nan)
        columns.append([(values * inside).sum(1) / count for values in (square, variance)])
    error, expected = np.sqrt(np.array(columns)).transpose(1, 2, 0)
    return ByDistance(error, expected)


def near_error(
    square: Float64[np.ndarray, "learner point"],
    variance: Float64[np.ndarray, "learner point"],
    distance: Float64[np.ndarray, "learner point"],
) -> Float64[np.ndarray, " learner"]:
    """Computes error over expected error at grid points within NEAR of the data.

    NaN where there are none, or nothing is expected.
    """
    near = distance <= NEAR
    expected = (variance * near).sum(1)
    return np.sqrt((square * near).sum(1) / np.where(expected > 0, expected, np.nan))


# Transitions for the same error.


# A number, or one of each draw.
PerDraw = float | Float64[np.ndarray, "*draw"]


class SameError(NamedTuple):
    """Holds an error, and the transitions after which an arm and the active one have reached it.

    These are NaN if the error is no smaller than what one of them began with: an arm that learns
    nothing, or diverges, reaches no error that could be compared.
    """

    error: PerDraw
    arm: PerDraw
    active: PerDraw

    @property
    def ratio(self) -> PerDraw:
        return self.arm / self.active


def same_error(
    steps: tuple[int, ...],
    errors: Float64[np.ndarray, "checkpoint *draw"],
    active: Float64[np.ndarray, "checkpoint *draw"],
) -> SameError:
    """Compares an arm with the active one at the larger of both final errors: both reach it.

    An arm has the ratio 1 against itself, and the inverse with the arms exchanged.
    """
    target = np.maximum(errors[-1], active[-1])
    learned = target < np.minimum(errors[0], active[0])
    reached = [
        np.where(learned, reached_at(steps, curve, target), np.nan) for curve in (errors, active)
    ]
    return SameError(target, *reached)


def ratios(
    config: ActiveDynamicsConfig, nrmse: Float64[np.ndarray, "checkpoint learner *draw"]
) -> dict[str, PerDraw]:
    """Computes `transition_ratio` of each arm but the active one, from medians over replicates."""
    arms = config.train.arms
    if "active" not in arms:
        return {}
    checkpoints, _, *draws = nrmse.shape
    medians = np.median(nrmse.reshape(checkpoints, len(arms), -1, *draws), axis=2)
    active = medians[:, arms.index("active")]
    steps = checkpoint_steps(config)
    return {
        f"transition_ratio.{arm}": same_error(steps, medians[:, place], active).ratio
        for place, arm in enumerate(arms)
        if arm != "active"
    }


def ratio_interval(
    config: ActiveDynamicsConfig,
    nrmse: Float64[np.ndarray, "checkpoint learner"],
    name: str,
    seed: int,
) -> Interval | None:
    """Computes the interval of one of `ratios`.

    Returns None if there are too few replicates, or a resample has no ratio.
    """
    by_arm = nrmse.reshape(len(nrmse), len(config.train.arms), -1)
    replicates = np.arange(by_arm.shape[2], dtype=float)
    if median_interval(replicates) is None:
        return None

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        resampled = by_arm[..., np.moveaxis(drawn.astype(int), axis, 0)]
        return np.asarray(ratios(config, resampled.reshape(*nrmse.shape, -1))[name])

    rng = np.random.default_rng(seed)
    interval = bootstrap_interval([replicates], statistic, rng, RESAMPLES)
    return interval if np.isfinite(interval).all() else None


@np.errstate(all="ignore")
def reached_at(
    steps: tuple[int, ...], errors: Float64[np.ndarray, "checkpoint *draw"], target: PerDraw
) -> PerDraw:
    """Computes the transitions after which an error stays at or below `target`.

    Means something where the first error is above `target` and the last is not. Errors are
    interpolated between checkpoints, log against log.
    """
    above = errors > target
    place = np.clip(len(errors) - above[::-1].argmax(0), 1, len(errors) - 1)
    before, after = (np.take_along_axis(errors, (place - back)[None], 0)[0] for back in (1, 0))
    before, after = np.log(before), np.log(np.maximum(after, SMALLEST))
    share = (before - np.log(np.maximum(target, SMALLEST))) / (before - after)
    times = np.array(steps)
    growth = np.log(times[place] / times[place - 1])
    reached: PerDraw = np.exp(np.log(times[place - 1]) + share * growth)
    return reached
