"""An extended Kalman filter of state and weights with dense matrices, one row after another."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Model(NamedTuple):
    """Holds a field W phi(x) of RBFs, and linear observations with independent noise."""

    centres: Tensor
    length: float
    dt: float
    process_noise: float
    observation_matrix: Tensor
    bias: Tensor
    noise_variance: Tensor

    @property
    def d(self) -> int:
        return self.centres.shape[1]

    def features(self, x: Tensor) -> Tensor:
        return torch.exp(-(x - self.centres).square().sum(1) / (2 * self.length**2))

    def jacobian(self, weight: Tensor, x: Tensor) -> Tensor:
        return weight @ (-self.features(x)[:, None] * (x - self.centres) / self.length**2)


class Belief(NamedTuple):
    """Holds mean [n] and covariance [n, n] of the state and the weights by output."""

    mean: Tensor
    covariance: Tensor


class Corrected(NamedTuple):
    """Holds a belief, and the negative log likelihood of its observation in nats."""

    belief: Belief
    innovation_nll: float


def predict(model: Model, belief: Belief, u: Tensor) -> Belief:
    d, n = model.d, len(belief.mean)
    x, weight = belief.mean[:d], belief.mean[d:].reshape(d, -1)
    features = model.features(x)
    moves = torch.eye(n, dtype=x.dtype)
    moves[:d, :d] += model.dt * model.jacobian(weight, x)
    moves[:d, d:] = model.dt * torch.kron(torch.eye(d, dtype=x.dtype), features[None])
    noise = torch.zeros(n, n, dtype=x.dtype)
    noise[:d, :d] = model.process_noise * model.dt * torch.eye(d, dtype=x.dtype)
    mean = belief.mean.clone()
    mean[:d] = x + (weight @ features + u) * model.dt
    return Belief(mean, moves @ belief.covariance @ moves.T + noise)


def correct(model: Model, belief: Belief, y: Tensor) -> Corrected:
    """Corrects a belief with the gain from the covariance of all channels."""
    matrix = torch.zeros(len(y), len(belief.mean), dtype=y.dtype)
    matrix[:, : model.d] = model.observation_matrix
    error = y - matrix @ belief.mean - model.bias
    expected = matrix @ belief.covariance @ matrix.T + torch.diag(model.noise_variance)
    gain = torch.linalg.solve(expected, matrix @ belief.covariance).T
    mean = belief.mean + gain @ error
    covariance = (torch.eye(len(mean), dtype=y.dtype) - gain @ matrix) @ belief.covariance
    quadratic = error @ torch.linalg.solve(expected, error)
    nll = 0.5 * (quadratic + torch.logdet(expected) + len(y) * math.log(2 * math.pi))
    return Corrected(Belief(mean, (covariance + covariance.T) / 2), nll.item())


def step(model: Model, beliefs: list[Belief], u: Tensor, y: Tensor) -> list[Corrected]:
    """Predicts and corrects all rows, one after another."""
    return [
        correct(model, predict(model, belief, own_u), own_y)
        for belief, own_u, own_y in zip(beliefs, u, y, strict=True)
    ]
