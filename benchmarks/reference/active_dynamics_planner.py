"""The original's planner: candidate by candidate and step by step, with a pseudo-inverse of the observations'
covariance in each of them, and the information about all weights of a field of radial basis functions.

The model's state moves by x + (W phi(x) + u) dt and is seen through a linear map.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Model(NamedTuple):
    """A field and how it is seen. covariance: of the observations' noise; prior: of the weights, output by output."""

    centres: Tensor
    weight: Tensor
    length: float
    dt: float
    observation_matrix: Tensor
    covariance: Tensor
    prior: Tensor

    def features(self, x: Tensor) -> Tensor:
        """[C]"""
        return torch.exp(-(x - self.centres).square().sum(1) / (2 * self.length**2))

    def jacobian(self, x: Tensor) -> Tensor:
        """Of the field: [d, d]."""
        derivatives = -self.features(x)[:, None] * (x - self.centres) / self.length**2
        return self.weight @ derivatives


class Settings(NamedTuple):
    """Of the cross-entropy method."""

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
"""What was imagined: state, action and features of each step."""
Precision = Callable[[Model], Tensor]
Score = Callable[[Rollout], float]


def imagined(model: Model, start: Tensor, actions: Tensor) -> Rollout:
    """The mean's path, a dictionary a step; `state` is the one after the step, `before` that before it."""
    state, result = start, []
    for action in actions:
        features = model.features(state)
        following = state + (model.weight @ features + action) * model.dt
        result.append({"before": state, "action": action, "features": features, "state": following})
        state = following
    return result


def sensitivities(model: Model, rollout: Rollout) -> list[Tensor]:
    """How each state changes with the weights [d, d C], by the chain rule from one step to the next."""
    identity = torch.eye(len(model.weight), dtype=model.weight.dtype)
    result, carried = [], model.weight.new_zeros(len(identity), model.weight.numel())
    for step in rollout:
        direct = torch.kron(identity, step["features"][None])
        carried = carried + model.dt * (model.jacobian(step["before"]) @ carried + direct)
        result.append(carried)
    return result


def of_noise(model: Model) -> Tensor:
    """What an observation tells about the state [d, d]: inverts the covariance anew, though it never changes."""
    return (
        model.observation_matrix.T @ torch.linalg.pinv(model.covariance) @ model.observation_matrix
    )


def of_projection(model: Model) -> Tensor:
    """The original's: of C C^T, as large as the channels are many; what comes of it is the identity, whatever C is."""
    return (
        model.observation_matrix.T
        @ torch.linalg.pinv(model.observation_matrix @ model.observation_matrix.T)
        @ model.observation_matrix
    )


def diagonal_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """The drop of the weights' variances, each weight for itself: what the original sums up."""
    information = torch.zeros(model.weight.numel())
    for sensitivity in sensitivities(model, rollout):
        information = information + (sensitivity * (precision(model) @ sensitivity)).sum(0)
    variances = model.prior.diagonal()
    return (variances - 1 / (1 / variances + information)).sum().item()


def full_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """The drop of the weights' variances, with every weight's part in every other's."""
    learned = torch.linalg.inv(
        torch.linalg.inv(model.prior) + _information(model, rollout, precision)
    )
    return (model.prior - learned).trace().item()


def full_gain(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Nats learned about the weights, 1/2 logdet(I + P F)."""
    learned = model.prior @ _information(model, rollout, precision)
    return 0.5 * torch.logdet(torch.eye(len(learned), dtype=learned.dtype) + learned).item()


def _information(model: Model, rollout: Rollout, precision: Precision) -> Tensor:
    """Fisher's, of all weights: F = sum of S' Lambda S."""
    terms = [
        sensitivity.T @ precision(model) @ sensitivity
        for sensitivity in sensitivities(model, rollout)
    ]
    return torch.stack(terms).sum(0)


class Plan(NamedTuple):
    """Distribution of the decisions, and the best of the last iteration."""

    mean: Tensor
    elites: list[Tensor]
    scores: list[float]


def plan(
    model: Model, start: Tensor, score: Score, settings: Settings, rng: np.random.Generator
) -> Plan:
    """The cross-entropy method with coloured noise, one candidate after another."""
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
    """One sequence a dimension, of unit variance, whose power falls with the frequency to the power of `colour`."""
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
    """Of a sequence of such a spectrum, at each time."""
    weights = np.full(len(amplitudes), 4.0)
    weights[0] = 2.0
    if times % 2 == 0:
        weights[-1] = 1.0
    return float((weights * amplitudes**2).sum() / times**2)
