"""state, held-out transitions -> scores: surprise, its calibration, predictions of several steps"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from quatrain.envs.host.user_code import user_code
from quatrain.errors import DataError
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.losses import LOG_2PI
from quatrain.models.active_dynamics.user_env import regression
from quatrain.models.active_dynamics.user_env.data import Dataset, Runs
from quatrain.models.active_dynamics.user_env.learn import State, to_tensors
from quatrain.models.active_dynamics.user_env.regression import Model, Transitions
from quatrain.progress import Evaluation

# Half the width of the interval that holds 90 % of a normal distribution, and 95 %.
QUANTILE_90, QUANTILE = 1.645, 1.96
# Consecutive transitions whose mean surprise counts as one sample.
SEGMENT = 25
# Held-out states that a true field is asked for, at most.
MOST_POINTS = 2000

# State and action -> scaled velocity; the third argument is the velocity before the path.
Predict = Callable[[Tensor, Tensor, Tensor], Tensor]


class Paths(NamedTuple):
    """Holds first transitions of held-out paths, each of `horizon` transitions of one run."""

    starts: Int64[np.ndarray, " path"]
    horizon: int


class Outcome(NamedTuple):
    """Holds what pictures need.

    standardized: innovations of each learner, in units of what it expects. measured, predicted:
    the states of a held-out path, the latter by its first state and its actions.
    """

    standardized: Float64[np.ndarray, "learner time d"]
    measured: Float64[np.ndarray, "moment d"]
    predicted: Float64[np.ndarray, "learner moment d"]


@torch.no_grad()
def evaluate(config: ActiveDynamicsUserEnvConfig, state: State, dataset: Dataset) -> Evaluation:
    """Computes medians over the seeds of each arm, and scores of references.

    innovation_nll.ARM: nats per dimension of held-out velocities, scaled to 1. nis.ARM: mean square
    of innovations in units of what is expected; its 95 % interval, from `nis_low.ARM` to
    `nis_high.ARM`, by few transitions and an uncertain noise, holds 1 if the learner is calibrated.
    coverage_90.ARM: share within their 90 % intervals.
    prediction_r2_1.ARM, prediction_r2.ARM: share of the displacement over one transition, and over
    `evaluate.horizon`, that is predicted. field_nrmse.ARM: relative error of a true field.
    """
    held_out = to_tensors(dataset.held_out)
    paths = split(dataset.held_out, config.evaluate.horizon)
    columns = [learner_scores(config, each.model, dataset, paths) for each in state.params]
    scores = {"seeds": float(config.seeds), "horizon": float(paths.horizon)}
    for name in columns[0]:
        values = np.array([column[name] for column in columns]).reshape(len(config.arms), -1)
        medians = np.median(values, 1).tolist()
        scores |= {f"{name}.{arm}": value for arm, value in zip(config.arms, medians, strict=True)}
    model = state.params[0].model
    scores |= reference_scores(model, dataset, paths)
    longest = split(dataset.held_out, config.evaluate.horizon * 5)
    models = [learner.model for learner in state.params]
    dt = float(dataset.dt)
    rolled = [follow(each, held_out, longest, dt, of_model(each)) for each in models]
    surprises = [regression.surprise(each, held_out, dt).standardized for each in models]
    return Evaluation(
        scores,
        Outcome(
            standardized=torch.stack(surprises).numpy(force=True),
            measured=true_paths(model, held_out, longest)[0].numpy(force=True),
            predicted=torch.stack([path[0] for path in rolled]).numpy(force=True),
        ),
    )


def learner_scores(
    config: ActiveDynamicsUserEnvConfig, model: Model, dataset: Dataset, paths: Paths
) -> dict[str, float]:
    held_out, dt = to_tensors(dataset.held_out), float(dataset.dt)
    surprise = regression.surprise(model, held_out, dt)
    squares = surprise.standardized.square().mean(1)
    continues = torch.tensor(~dataset.held_out.ends[:-1])
    following = (surprise.standardized[1:] * surprise.standardized[:-1]).mean(1)[continues]
    segments = torch.stack([part.mean() for part in squares.split(SEGMENT)])
    nis = float(squares.mean())
    error = segments.std() / len(segments) ** 0.5 / nis
    half = float(QUANTILE * nis * (error.square() + model.noise_error.square()).sqrt())
    scores = {
        "innovation_nll": float(surprise.nll.mean()),
        "nis": nis,
        "nis_low": nis - half,
        "nis_high": nis + half,
        "whiteness": float(following.mean() / squares.mean()),
        "coverage_90": float((surprise.standardized.abs() < QUANTILE_90).double().mean()),
        **prediction_scores(model, held_out, paths, dt, of_model(model)),
    }
    if config.env.true_field is not None:
        scores["field_nrmse"] = field_error(config.env.true_field, model, held_out)
    return scores


def of_model(model: Model) -> Predict:
    return lambda z, a, _: model.mean(model.features(z, a), a)


def reference_scores(model: Model, dataset: Dataset, paths: Paths) -> dict[str, float]:
    """Computes the scores of a constant velocity, and of a linear model of states and actions."""
    dt = float(dataset.dt)
    train, held_out = to_tensors(dataset.train), to_tensors(dataset.held_out)
    z, v = model.state(train.y), model.scaled_velocity(train, dt)
    linear = torch.linalg.pinv(_affine(z, train.actions)) @ v
    references: dict[str, Predict] = {
        "constant_velocity": lambda _z, _a, before: before,
        "linear_model": lambda z, a, _: _affine(z, a) @ linear,
    }
    scores = {}
    for name, predict in references.items():
        errors = [
            model.scaled_velocity(batch, dt)
            - predict(model.state(batch.y), batch.actions, _before(model, batch, runs, dt))
            for batch, runs in ((train, dataset.train), (held_out, dataset.held_out))
        ]
        noise = errors[0].square().mean(0).clamp(min=regression.LEAST_NOISE**2)
        nll = (errors[1].square() / noise + noise.log() + LOG_2PI).mean() / 2
        before = _before(model, held_out, dataset.held_out, dt)
        metrics = prediction_scores(model, held_out, paths, dt, predict, before)
        scores[f"innovation_nll_{name}"] = float(nll)
        scores |= {f"{metric}_{name}": value for metric, value in metrics.items()}
    return scores


def _affine(z: Tensor, actions: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(z[:, :1]), z, actions], 1)


def _before(model: Model, batch: Transitions, runs: Runs, dt: float) -> Tensor:
    """Returns the velocity one transition before; 0 at the start of a run."""
    before = model.scaled_velocity(batch, dt).roll(1, 0)
    before[0] = 0
    before[1:][torch.tensor(runs.ends[:-1])] = 0
    return before


# Predictions.


def split(runs: Runs, horizon: int) -> Paths:
    """Cuts runs into paths of `horizon` transitions, or of the longest run if that is shorter."""
    ends = np.flatnonzero(runs.ends) + 1
    lengths = np.diff(ends, prepend=0)
    longest = min(horizon, int(lengths.max()))
    starts = [
        np.arange(end - length, end - longest + 1, longest)
        for end, length in zip(ends, lengths, strict=True)
        if length >= longest
    ]
    return Paths(np.concatenate(starts), longest)


def true_paths(model: Model, batch: Transitions, paths: Paths) -> Float64[Tensor, "path moment d"]:
    starts = torch.tensor(paths.starts)[:, None]
    after = batch.next_y[starts + torch.arange(paths.horizon)]
    return model.state(torch.cat([batch.y[starts], after], 1))


def follow(
    model: Model,
    batch: Transitions,
    paths: Paths,
    dt: float,
    predict: Predict,
    before: Tensor | None = None,
) -> Float64[Tensor, "path moment d"]:
    """Follows predicted velocities under the recorded actions."""
    starts = torch.tensor(paths.starts)
    z = model.state(batch.y[starts])
    velocity = torch.zeros_like(z) if before is None else before[starts]
    path = [z]
    for time in range(paths.horizon):
        v = predict(path[-1], batch.actions[starts + time], velocity)
        path.append(path[-1] + dt * model.speed * v)
    return torch.stack(path, 1)


def prediction_scores(
    model: Model,
    batch: Transitions,
    paths: Paths,
    dt: float,
    predict: Predict,
    before: Tensor | None = None,
) -> dict[str, float]:
    truth = true_paths(model, batch, paths)
    predicted = follow(model, batch, paths, dt, predict, before)
    scores = {}
    for name, time in (("prediction_r2_1", 1), ("prediction_r2", paths.horizon)):
        error = (predicted[:, time] - truth[:, time]).square().sum()
        scores[name] = float(1 - error / (truth[:, time] - truth[:, 0]).square().sum())
    return scores


def field_error(name: str, model: Model, batch: Transitions) -> float:
    """Computes the error of the field without actions at held-out states, in units in which each
    state and each velocity vary by 1, relative to the true one.

    Raises:
        DataError: the function cannot be imported, or returns no velocities.
    """
    y = batch.y[:: -(-len(batch.y) // MOST_POINTS)]
    module, _, function = name.partition(":")
    with user_code(lambda reason: f"active_dynamics.env.true_field {name}: {reason}"):
        velocity = getattr(import_module(module), function)
        truth = np.asarray(velocity(y.numpy(force=True).copy()), float)
        if truth.shape != tuple(y.shape) or not np.isfinite(truth).all():
            raise DataError(
                f"returned {truth.shape} for states {tuple(y.shape)}; return one finite velocity "
                "per state"
            )
    scaled = torch.tensor(truth).to(y.device) @ model.encoder.mT / model.speed
    still = torch.zeros(len(y), len(model.bound), dtype=y.dtype)
    error = model.mean(model.features(model.state(y), still), still) - scaled
    return float((error.square().sum() / scaled.square().sum()).sqrt())
