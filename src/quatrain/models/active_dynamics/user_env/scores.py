"""state, held-out transitions -> scores: surprise, its calibration, predictions of several steps"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.losses import LOG_2PI
from quatrain.models.active_dynamics.user_env import regression
from quatrain.models.active_dynamics.user_env.data import Dataset, Runs, true_velocities
from quatrain.models.active_dynamics.user_env.learn import State, to_tensors
from quatrain.models.active_dynamics.user_env.regression import Model, Transitions
from quatrain.progress import Evaluation

# Half the width of the interval that holds 90 % of a normal distribution, and 95 %.
QUANTILE_90, QUANTILE = 1.645, 1.96
# Consecutive transitions whose mean surprise counts as one sample.
SEGMENT = 25

# Scaled state and action -> scaled velocity.
Predict = Callable[[Tensor, Tensor], Tensor]
# Numbers of the transitions of held-out paths, each within one run.
Paths = Int64[Tensor, "path time"]


class Outcome(NamedTuple):
    """Holds the states of a held-out path, and what is predicted of it, in the user's units."""

    measured: Float64[np.ndarray, "moment d"]
    predicted: Float64[np.ndarray, "learner moment d"]


@torch.no_grad()
def evaluate(config: Config, state: State, dataset: Dataset) -> Evaluation:
    """Computes medians over the seeds of each arm, and scores of references.

    innovation_nll.ARM: nats per dimension of held-out velocities, scaled to 1. nis.ARM: mean square
    of innovations in units of what is expected; its 95 % interval, from `nis_low.ARM` to
    `nis_high.ARM`, by few transitions and an uncertain noise, holds 1 if the learner is calibrated.
    coverage_90.ARM: share within their 90 % intervals. prediction_r2.ARM: share of the displacement
    over `evaluate.horizon` that is predicted. field_nrmse.ARM: relative error of a true field.
    """
    held_out, dt = to_tensors(dataset.held_out), float(dataset.dt)
    paths = split(dataset.held_out, config.evaluate.horizon)
    models = [learner.model for learner in state.params]
    columns = [learner_scores(config, model, dataset, paths) for model in models]
    scores = {"seeds": float(config.seeds), "horizon": float(paths.shape[1])}
    for name in columns[0]:
        values = np.array([column[name] for column in columns]).reshape(len(config.arms), -1)
        medians = np.median(values, 1).tolist()
        scores |= {f"{name}.{arm}": value for arm, value in zip(config.arms, medians, strict=True)}
    scores |= reference_scores(models[0], dataset, paths)
    first = paths[:1]
    measured = torch.cat([held_out.y[first[0, :1]], held_out.next_y[first[0]]])
    predicted = [
        follow(model, held_out, first, dt, predict_of(model))[0] / model.scale + model.center
        for model in models
    ]
    outcome = Outcome(measured.numpy(force=True), torch.stack(predicted).numpy(force=True))
    return Evaluation(scores, outcome)


def learner_scores(
    config: Config, model: Model, dataset: Dataset, paths: Paths
) -> dict[str, float]:
    held_out, dt = to_tensors(dataset.held_out), float(dataset.dt)
    nll, standardized = regression.surprise(model, held_out, dt)
    squares = standardized.square().mean(1)
    segments = torch.stack([part.mean() for part in squares.split(SEGMENT)])
    nis = float(squares.mean())
    error = segments.std() / len(segments) ** 0.5 / nis
    half = float(QUANTILE * nis * (error.square() + model.noise_error.square()).sqrt())
    path = follow(model, held_out, paths, dt, predict_of(model))
    scores = {
        "innovation_nll": float(nll.mean()),
        "nis": nis,
        "nis_low": nis - half,
        "nis_high": nis + half,
        "coverage_90": float((standardized.abs() < QUANTILE_90).double().mean()),
        "prediction_r2": prediction_r2(model, held_out, paths, path[:, -1] - path[:, 0]),
    }
    if config.env.true_field is not None:
        scores["field_nrmse"] = field_error(config.env.true_field, model, held_out)
    return scores


def predict_of(model: Model) -> Predict:
    return lambda z, a: model.mean(model.features(z, a), a)


def reference_scores(model: Model, dataset: Dataset, paths: Paths) -> dict[str, float]:
    """Computes the scores of a constant velocity, and of a linear model of states and actions; both
    expect the noise that they show.
    """
    dt = float(dataset.dt)
    train, held_out = to_tensors(dataset.train), to_tensors(dataset.held_out)
    rows = [_affine(model.state(batch.y), batch.actions) for batch in (train, held_out)]
    linear = torch.linalg.pinv(rows[0]) @ model.scaled_velocity(train, dt)
    v = model.scaled_velocity(held_out, dt)
    # The velocity one transition before; 0 at the start of a run.
    before = (v * ~torch.tensor(dataset.held_out.ends, device=v.device)[:, None]).roll(1, 0)
    steady = paths.shape[1] * dt * model.speed * before[paths[:, 0]]
    path = follow(model, held_out, paths, dt, lambda z, a: _affine(z, a) @ linear)
    scores = {}
    for name, errors, displacement in (
        ("constant_velocity", v - before, steady),
        ("linear_model", v - rows[1] @ linear, path[:, -1] - path[:, 0]),
    ):
        noise = errors.square().mean(0).clamp(min=regression.LEAST_NOISE**2)
        scores[f"innovation_nll_{name}"] = float((1 + noise.log() + LOG_2PI).mean() / 2)
        scores[f"prediction_r2_{name}"] = prediction_r2(model, held_out, paths, displacement)
    return scores


def _affine(z: Tensor, actions: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(z[:, :1]), z, actions], 1)


# Predictions.


def split(runs: Runs, horizon: int) -> Paths:
    """Cuts runs into paths of `horizon` transitions, or of the longest run if that is shorter."""
    ends = np.flatnonzero(runs.ends) + 1
    lengths = np.diff(ends, prepend=0)
    longest = min(horizon, int(lengths.max()))
    starts = [
        np.arange(end - length, end - longest + 1, longest)
        for end, length in zip(ends, lengths, strict=True)
    ]
    return torch.tensor(np.concatenate(starts)[:, None] + np.arange(longest))


def follow(
    model: Model, batch: Transitions, paths: Paths, dt: float, predict: Predict
) -> Float64[Tensor, "path moment d"]:
    """Follows predicted velocities under the recorded actions."""
    path = [model.state(batch.y[paths[:, 0]])]
    for actions in batch.actions[paths].unbind(1):
        path.append(path[-1] + dt * model.speed * predict(path[-1], actions))
    return torch.stack(path, 1)


def prediction_r2(
    model: Model, batch: Transitions, paths: Paths, predicted: Float64[Tensor, "path d"]
) -> float:
    """Computes the share of the squared displacement over paths that is predicted."""
    true = (batch.next_y[paths[:, -1]] - batch.y[paths[:, 0]]) * model.scale
    return float(1 - (predicted - true).square().sum() / true.square().sum())


def field_error(name: str, model: Model, batch: Transitions) -> float:
    """Computes the error of the field without actions at held-out states, in units in which each
    state and each velocity vary by 1, relative to the true one.

    Raises:
        DataError: the function cannot be imported, or returns no velocities.
    """
    y = batch.y
    truth = true_velocities(name, y.numpy(force=True))
    scaled = torch.tensor(truth).to(y.device) * model.scale / model.speed
    still = torch.zeros(len(y), len(model.bound), dtype=y.dtype)
    error = model.mean(model.features(model.state(y), still), still) - scaled
    return float((error.square().sum() / scaled.square().sum()).sqrt())
