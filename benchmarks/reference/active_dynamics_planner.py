"""The original's planner: candidate by candidate and step by step, with a pseudo-inverse of the
observation covariance in each step. The state moves by x + (W phi(x) + u) dt. The colour of noise
is the project's.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.planner import colouring


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
    inverse = torch.linalg.pinv(model.covariance)
    return model.observation_matrix.T @ inverse @ model.observation_matrix


def of_projection(model: Model) -> Tensor:
    """Computes the original's precision, with C C^T; the result is the identity for any C."""
    matrix = model.observation_matrix
    return matrix.T @ torch.linalg.pinv(matrix @ matrix.T) @ matrix


def diagonal_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Computes the reduction of the variances, each weight by itself, as the original does."""
    information = torch.zeros(model.weight.numel())
    for sensitivity in sensitivities(model, rollout):
        information = information + (sensitivity * (precision(model) @ sensitivity)).sum(0)
    variances = model.prior.diagonal()
    return (variances - 1 / (1 / variances + information)).sum().item()


def full_drop(model: Model, rollout: Rollout, precision: Precision) -> float:
    """Computes the reduction of the variances with the joint covariance of all weights."""
    steps = sensitivities(model, rollout)
    information = torch.stack([step.T @ precision(model) @ step for step in steps]).sum(0)
    learned = torch.linalg.inv(torch.linalg.inv(model.prior) + information)
    return (model.prior - learned).trace().item()


def plan(
    model: Model, start: Tensor, score: Score, settings: Settings, generator: Generator
) -> Tensor:
    """Plans by the cross-entropy method with coloured noise, one candidate after another; returns
    the mean of the actions.
    """
    shape = (settings.horizon, len(start))
    mean, std = torch.zeros(shape), torch.full(shape, settings.init_std)
    elites: list[Tensor] = []
    colour = colouring(settings.horizon, settings.colour, start.device)
    for _ in range(settings.iterations):
        candidates = [mean, *elites[: settings.keep]]
        while len(candidates) < settings.candidates:
            noise = colour @ torch.randn(shape, generator=generator)
            candidates.append((mean + std * noise).clamp(-settings.bound, settings.bound))
        scores = [score(imagined(model, start, candidate)) for candidate in candidates]
        order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        elites = [candidates[index] for index in order[: settings.elites]]
        best = torch.stack(elites)
        mean = (1 - settings.alpha) * best.mean(0) + settings.alpha * mean
        std = (1 - settings.alpha) * best.std(0) + settings.alpha * std
    return mean
