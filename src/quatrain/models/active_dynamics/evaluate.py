"""learner, held-out data -> scores: how wrong and how sure each arm is of the field, and how much sooner it knew."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from scipy.special import ndtri
from torch import Tensor

from quatrain.baselines import Gated
from quatrain.envs.vector_field.world import World
from quatrain.models.active_dynamics.bayes_filter.filter import Filter
from quatrain.models.active_dynamics.bayes_filter.learner import frozen_innovation
from quatrain.models.active_dynamics.collect import Dataset, HeldOut
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import FieldLearner
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.state import State, TrainingState, checkpoint_steps
from quatrain.statistics import Interval, bootstrap_interval, median_interval

AHEAD = (1, 5, 10, 20)
"""Transitions after which a predicted state is compared."""
LEVELS = np.arange(0.1, 0.95, 0.1)
"""Nominal shares of calibration."""
FLOORS, CEILINGS = ("zero_field", "affine_field"), ("projection_floor",)
GATED = (
    Gated("field_nrmse.active", "lower", 0.02, {}, FLOORS, CEILINGS),
    Gated("transition_ratio.random", "higher", 1.5, {"default": 5.0}),
    Gated("displacement_r2_20.active", "higher", 0.02, {}),
    Gated("coverage_90.active", "near", 0.08, {}),
)
JUDGED = {gated.metric.rsplit(".", 1)[0] for gated in GATED}
SMALLEST = 1e-12
RESAMPLES = 1000
"""Of the replicates, for the interval of a ratio."""
LARGEST_EXACT = 1e-3
"""Error of an affine fit at which the field itself is affine."""


class FieldEstimate(NamedTuple):
    """What all rows know of the field on the grid, in the true gauge; by checkpoint their errors."""

    mean: Float64[np.ndarray, "learner point d"]
    variance: Float64[np.ndarray, "learner point d"]
    nrmse: Float64[np.ndarray, "checkpoint learner"]


def evaluate(
    config: ActiveDynamicsConfig, state: State, dataset: Dataset, seed: int
) -> dict[str, float]:
    """Metrics of active_dynamics: of each arm medians over replicates, what is judged with 95 % intervals.

    Intervals are order statistics, from 6 replicates on. `transition_ratio.ARM` says how many times as many transitions
    ARM took for its median final error as the active arm's replicates did; both are uncertain, so its interval is
    bootstrapped over replicates, in pairs.
    """
    training = TrainingState.from_state(config, dataset, state)
    known = estimate_field(config, training.learner, state, dataset)
    columns = {"field_nrmse": known.nrmse[-1], **calibration(known, dataset.held_out)}
    columns |= predictions(config, training.world, training.learner, dataset.held_out)
    columns |= {
        name: _array(value)
        for name, value in training.learner.evaluate(dataset.held_out, seed).items()
    }
    columns["information_gained"] = _array(state.information)
    by_arm = {
        f"{name}.{arm}": own
        for name, column in columns.items()
        for arm, own in zip(
            config.train.arms, column.reshape(len(config.train.arms), -1), strict=True
        )
    }
    intervals = {
        name: median_interval(own)
        for name, own in by_arm.items()
        if name.rsplit(".", 1)[0] in JUDGED
    }
    by_arm |= (found := ratios(config, known.nrmse))
    intervals |= {name: ratio_interval(config, known.nrmse, name, seed) for name in found}
    scores = {name: float(np.median(own)) for name, own in by_arm.items()}
    for name, interval in intervals.items():
        if interval is not None:
            scores |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return (
        scores
        | floors(config, dataset)
        | {"innovation_nll_oracle": oracle(config, training.world, dataset.held_out)}
    )


@torch.no_grad()
def estimate_field(
    config: ActiveDynamicsConfig, rows: FieldLearner, state: State, dataset: Dataset
) -> FieldEstimate:
    """What was learned, and at each checkpoint how wrong it was; at one that is to come, how wrong it is now."""
    grid, truth = (
        torch.tensor(part).double() for part in (dataset.held_out.grid, dataset.held_out.grid_field)
    )
    errors = []
    for place, step in enumerate(checkpoint_steps(config)):
        kept = {name: value[place] for name, value in state.snapshots.items()}
        weights = kept if step <= int(state.transitions) else rows.weights
        alignment = rows.alignment(weights, dataset.held_out)
        mean = alignment.to_velocity(
            rows.drift(
                weights, alignment.to_latent(grid.expand(config.learners, -1, -1)).float()
            ).double()
        )
        errors.append((mean - truth).square().sum((1, 2)) / truth.square().sum())
    alignment = rows.alignment(rows.weights, dataset.held_out)
    found = rows.moments(alignment.to_latent(grid.expand(config.learners, -1, -1)))
    mean, variance = (
        alignment.to_velocity(found.mean),
        alignment.to_velocity_variance(found.variance),
    )
    return FieldEstimate(_array(mean), _array(variance), _array(torch.stack(errors).sqrt()))


def calibration(
    known: FieldEstimate, held_out: HeldOut
) -> dict[str, Float64[np.ndarray, " learner"]]:
    """Whether the field is where its uncertainty says."""
    variance = np.maximum(known.variance, SMALLEST)
    square = (known.mean - held_out.grid_field) ** 2 / variance
    inside = [(square <= ndtri((1 + level) / 2) ** 2).mean((1, 2)) for level in LEVELS]
    return {
        "field_nlpd": ((square + np.log(2 * np.pi * variance)) / 2).mean((1, 2)),
        "coverage_90": inside[-1],
        "calibration": np.abs(np.stack(inside) - LEVELS[:, None]).mean(0),
    }


@torch.no_grad()
def predictions(
    config: ActiveDynamicsConfig, world: World, rows: FieldLearner, held_out: HeldOut
) -> dict[str, Float64[np.ndarray, " learner"]]:
    """R² of states some transitions ahead, from true starts, along actions that were not learned from.

    The field is followed in the true gauge, in which it is known what actions do: no field then explains nothing.
    Paths count as long as the true one is in the region: beyond it the field need not be known.
    """
    alignment, weights = rows.alignment(rows.weights, held_out), rows.weights
    truth = torch.tensor(held_out.clean_states).double()
    u = torch.tensor(held_out.start_actions).double() @ world.control.T.double()
    inside = (truth.norm(dim=2) <= config.env.region_radius).cumprod(1).bool()
    dt, x = world.spec.dt, truth[:, 0].expand(config.learners, -1, -1)
    scores = {}
    for time in range(1, max(AHEAD) + 1):
        velocity = alignment.to_velocity(
            rows.drift(weights, alignment.to_latent(x).float()).double()
        )
        x = x + (velocity + u[:, time - 1]) * dt
        if time in AHEAD:
            judged = inside[:, time] if inside[:, time].any() else inside[:, 0]
            there, begun, pushed = (
                truth[judged, time],
                truth[judged, 0],
                u[judged, :time].sum(1) * dt,
            )
            error = (x[:, judged] - there).square().sum((1, 2))
            scores[f"displacement_r2_{time}"] = _array(
                1 - error / (there - begun - pushed).square().sum()
            )
            scores[f"position_r2_{time}"] = _array(
                1 - error / (there - there.mean(0)).square().sum()
            )
    return scores


def ratios(
    config: ActiveDynamicsConfig, nrmse: Float64[np.ndarray, "checkpoint learner"]
) -> dict[str, Float64[np.ndarray, " replicate"]]:
    """N / T for each arm but the active one: T transitions, and a replicate of that one is as good as ARM after N.

    Between checkpoints errors are interpolated, logarithm against logarithm; 0 where that good is never reached.
    """
    arms = config.train.arms
    if "active" not in arms:
        return {}
    of_arm = nrmse.reshape(len(nrmse), len(arms), -1)
    active = of_arm[:, arms.index("active")].T
    found = {}
    for arm, place in ((arm, place) for place, arm in enumerate(arms) if arm != "active"):
        wanted = float(np.median(of_arm[-1, place]))
        reached = [reached_at(checkpoint_steps(config), errors, wanted) for errors in active]
        found[f"transition_ratio.{arm}"] = np.array(
            [config.train.transitions / one if one else 0.0 for one in reached]
        )
    return found


def ratio_interval(
    config: ActiveDynamicsConfig,
    nrmse: Float64[np.ndarray, "checkpoint learner"],
    name: str,
    seed: int,
) -> Interval | None:
    """Of a median of `ratios`; None of fewer replicates than a median's interval takes."""
    of_arm = nrmse.reshape(len(nrmse), len(config.train.arms), -1)
    replicates = np.arange(of_arm.shape[2], dtype=float)
    if median_interval(replicates) is None:
        return None

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        def one(chosen: np.ndarray) -> float:
            return float(
                np.median(
                    ratios(config, of_arm[..., chosen.astype(int)].reshape(len(nrmse), -1))[name]
                )
            )

        return np.apply_along_axis(one, axis, drawn)

    return bootstrap_interval([replicates], statistic, np.random.default_rng(seed), RESAMPLES)


def reached_at(
    steps: tuple[int, ...], errors: Float64[np.ndarray, " checkpoint"], wanted: float
) -> float | None:
    """Transitions after which an error was first as low as wanted; None: never."""
    hits = np.flatnonzero(errors <= wanted)
    if not len(hits):
        return None
    place = int(hits[0])
    if place == 0:
        return float(steps[0])
    after, before = (np.log(max(error, SMALLEST)) for error in (errors[place], errors[place - 1]))
    share = (before - np.log(wanted)) / (before - after)
    return float(np.exp(np.log(steps[place - 1]) + share * np.log(steps[place] / steps[place - 1])))


def floors(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, float]:
    """Relative errors of no field, of the best affine one, and of the best that the features can be.

    Of a field that is affine itself the best affine one is no floor, and counts as no field.
    """
    grid, truth = dataset.held_out.grid.astype(float), dataset.held_out.grid_field.astype(float)
    affine = _best(np.column_stack([grid, np.ones(len(grid))]), truth)
    found = {"zero_field": 1.0, "affine_field": affine if affine > LARGEST_EXACT else 1.0}
    if config.network.uses_rbf:
        features = make_rbf(config.network.rbf, config.env.d).features(
            torch.tensor(dataset.held_out.grid).double()
        )
        found["projection_floor"] = _best(_array(features), truth)
    else:
        found["projection_floor"] = 0.0
    return found


def oracle(config: ActiveDynamicsConfig, world: World, held_out: HeldOut) -> float:
    """Innovation of a filter that knows field and channels, on the held-out rollouts."""
    rbf = make_rbf(config.network.rbf, config.env.d)
    given = Filter(rbf, world.emission.double(), config.env.dt, config.env.process_noise)
    u = torch.tensor(held_out.rollouts.actions).double() @ world.control.T.double()

    def field(x: Tensor) -> Tensor:
        return world.field(x.float()).double()  # a user's function may know single precision alone

    return float(frozen_innovation(given, field, held_out.rollouts, u, 1))


def _best(columns: Float[np.ndarray, "point column"], truth: Float[np.ndarray, "point d"]) -> float:
    """Relative error of the least-squares fit."""
    fit = columns @ np.linalg.lstsq(columns, truth, rcond=None)[0]
    return float(np.sqrt(((fit - truth) ** 2).sum() / (truth**2).sum()))


def _array(value: Tensor) -> Float64[np.ndarray, "..."]:
    return value.double().numpy(force=True)
