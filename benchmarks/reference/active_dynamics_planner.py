"""The original's planner: candidate by candidate and step by step, with a pseudo-inverse of the
observation covariance in each step. The state moves by x + (W phi(x) + u) dt.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Model(NamedTuple):
    """Holds a field and its observation.

    covariance: of the observation noise. prior: covariance of the weights, output by output.
    """

    centres: Tensor
    weight: Tensor
    length: float
    dt: float
    observation_matrix: Tensor
    covariance: Tensor
    prior: Tensor

    def features(self, x: Tensor) -> Tensor:
        """Computes phi(x), [C]."""
        return torch.exp(-(x - self.centres).square().sum(1) / (2 * self.length**2))

    def jacobian(self, x: Tensor) -> Tensor:
        """Computes the Jacobian of the field, [d, d]."""
        derivatives = -self.features(x)[:, None] * (x - self.centres) / self.length**2
        return self.weight @ derivatives


class Settings(NamedTuple):
    """Holds settings of the cross-entropy method."""

    candidates: int = 32
    iterations: int = 10
    horizon: int = 10
    elites: int = 10
    keep: int = 3
    alpha: float = 0.1
    init_std: float = 0.5
    colour: float = 1.0
    bound: float = 1.0


Rollout = list[dict[str, Tensor]]
"""State, action and features of each imagined step."""
Precision = Callable[[Model], Tensor]
Score = Callable[[Rollout], float]


def imagined(model: Model, start: Tensor, actions: Tensor) -> Rollout:
    """Returns the mean path, a dictionary per step; `before` and `state`: around the step."""
    state, result = start, []
    for action in actions:
        features = model.features(state)
        following = state + (model.weight @ features + action) * model.dt
        result.append({"before": state, "action": action, "features": features, "state": following})
        state = following
    return result


def sensitivities(model: Model, rollout: Rollout) -> list[Tensor]:
    """Computes the derivative of each state by the weights, [d, d C], by the chain rule."""
    identity = torch.eye(len(model.weight), dtype=model.weight.dtype)
    result, carried = [], model.weight.new_zeros(len(identity), model.weight.numel())
    for step in rollout:
        direct = torch.kron(identity, step["features"][None])
        carried = carried + model.dt * (model.jacobian(step["before"]) @ carried + direct)
        result.append(carried)
    return result


def of_noise(model: Model) -> Tensor:
    """Computes the precision of an observation, [d, d]; inverts the constant covariance anew."""
    return (
        model.observation_matrix.T @ torch.linalg.pinv(model.covariance) @ model.observation_matrix
    )


def of_projection(model: Model) -> Tensor:
    """Computes the original's precision, with C C^T; the result is the identity for any C."""
    return (
        model.observation_matrix.T
        @ torch.linalg.pinv(model.observation_matrix @ model.observation_matrix.T)
        @ model.observation_matrix
    )


def diagonal_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Computes the reduction of the variances, each weight by itself, as the original does."""
    information = torch.zeros(model.weight.numel())
    for sensitivity in sensitivities(model, rollout):
        information = information + (sensitivity * (precision(model) @ sensitivity)).sum(0)
    variances = model.prior.diagonal()
    return (variances - 1 / (1 / variances + information)).sum().item()


def full_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Computes the reduction of the variances with the joint covariance of all weights."""
    learned = torch.linalg.inv(
        torch.linalg.inv(model.prior) + _information(model, rollout, precision)
    )
    return (model.prior - learned).trace().item()


def full_gain(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Computes the information gain about the weights in nats, 1/2 logdet(I + P F)."""
    learned = model.prior @ _information(model, rollout, precision)
    return 0.5 * torch.logdet(torch.eye(len(learned), dtype=learned.dtype) + learned).item()


def _information(model: Model, rollout: Rollout, precision: Precision) -> Tensor:
    """Computes the Fisher information of all weights, F = sum of S' Lambda S."""
    terms = [
        sensitivity.T @ precision(model) @ sensitivity
        for sensitivity in sensitivities(model, rollout)
    ]
    return torch.stack(terms).sum(0)


class Plan(NamedTuple):
    """Holds the mean of the decisions, and the elites of the last iteration."""

    mean: Tensor
    elites: list[Tensor]
    scores: list[float]


def plan(
    model: Model, start: Tensor, score: Score, settings: Settings, rng: np.random.Generator
) -> Plan:
    """Plans by the cross-entropy method with coloured noise, one candidate after another."""
    shape = (settings.horizon, len(start))
    mean, std = torch.zeros(shape), torch.full(shape, settings.init_std)
    result = Plan(mean, [], [])
    for _ in range(settings.iterations):
        candidates = [mean, *result.elites[: settings.keep]]
        while len(candidates) < settings.candidates:
            noise = torch.tensor(coloured(shape, settings.colour, rng), dtype=mean.dtype)
            candidates.append((mean + std * noise).clamp(-settings.bound, settings.bound))
        scores = []
        for candidate in candidates:
            scores.append(score(imagined(model, start, candidate)))
        order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[: settings.elites]
        elites = [candidates[index] for index in order]
        chosen_mean, chosen_std = torch.stack(elites).mean(0), torch.stack(elites).std(0)
        mean = (1 - settings.alpha) * chosen_mean + settings.alpha * mean
        std = (1 - settings.alpha) * chosen_std + settings.alpha * std
        result = Plan(mean, elites, [scores[index] for index in order])
    return result


def coloured(shape: tuple[int, int], colour: float, rng: np.random.Generator) -> np.ndarray:
    """Draws sequences of unit variance with power proportional to frequency^-colour."""
    times, dimensions = shape
    frequencies = np.maximum(np.fft.rfftfreq(times), 1 / times)
    amplitudes = frequencies ** (-colour / 2)
    columns = []
    for _ in range(dimensions):
        spectrum = amplitudes * (
            rng.standard_normal(len(amplitudes)) + 1j * rng.standard_normal(len(amplitudes))
        )
        spectrum[0] = math.sqrt(2) * spectrum[0].real
        sequence = np.fft.irfft(spectrum, times)
        columns.append(sequence / math.sqrt(_power(amplitudes, times)))
    return np.stack(columns, 1)


def _power(amplitudes: np.ndarray, times: int) -> float:
    """Returns the variance at each time of a sequence with this spectrum."""
    weights = np.full(len(amplitudes), 4.0)
    weights[0] = 2.0
    if times % 2 == 0:
        weights[-1] = 1.0
    return float((weights * amplitudes**2).sum() / times**2)
