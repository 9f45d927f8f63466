"""belief about state and field weights, an action, what was seen next -> the next belief, and how surprising it was.

An extended Kalman filter of s = [x; vec W] (weight (i, c) of f_i = Σ_c W_ic φ_c at d + i·C + c) in information form:
channels enter as d x d matrices alone, so that their number costs nothing once these are made.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.agents.filter.channels import Channels
from quatrain.models.active_dynamics.network import Rbf

START_VARIANCE = 1 / 3
"""Of U(-1, 1), from which each dimension of a state starts."""
ITERATIONS = 3
"""Of the correction's linearisation, where channels are not linear in the state."""
DIFFERENCE = 1e-3
"""Of states between which a slope is taken: a field may come in single precision."""


class Belief(NamedTuple):
    """Mean and covariance of [x; vec W]."""

    mean: Float64[Tensor, "row n"]
    covariance: Float64[Tensor, "row n n"]


class Filter(NamedTuple):
    """What does not change: features and channels in double precision, and the noise and time of a transition."""

    rbf: Rbf
    emission: Channels
    dt: float
    process_noise: float

    @property
    def d(self) -> int:
        return self.rbf.d


def prior(rbf: Rbf, rows: int, weight_variance: float) -> Belief:
    """Before anything is seen: a state from U(-1, 1), and independent weights around 0."""
    d, weights = rbf.d, rbf.d * rbf.size
    variance = torch.cat([torch.full((d,), START_VARIANCE), torch.full((weights,), weight_variance)]).double()
    mean = torch.zeros(rows, d + weights, dtype=torch.float64)
    return Belief(mean, torch.diag(variance).expand(rows, -1, -1).clone())


def weights(d: int, belief: Belief) -> Float64[Tensor, "row d feature"]:
    """W, as a view."""
    return belief.mean[:, d:].unflatten(1, (d, -1))


def predict(given: Filter, belief: Belief, u: Float64[Tensor, "row d"]) -> None:
    """x <- x + (W φ(x) + u) dt, in place, with F = [I + dt J, dt (I ⊗ φᵀ)] for the covariance F P Fᵀ + Q dt."""
    d, dt = given.d, given.dt
    mean, covariance = belief
    felt, slopes = given.rbf.with_derivatives(mean[:, :d])
    held = weights(d, belief)
    moved = torch.eye(d, dtype=mean.dtype, device=mean.device) + dt * (held @ slopes)
    by_output = covariance[:, d:].unflatten(1, (d, -1))
    crossed = moved @ covariance[:, :d] + dt * torch.matmul(felt[:, None, None], by_output).squeeze(2)
    by_weights = torch.matmul(crossed[..., d:].unflatten(2, (d, -1)), felt[:, None, :, None])[..., 0]
    own = crossed[..., :d] @ moved.mT + dt * by_weights
    mean[:, :d] += dt * (torch.matmul(held, felt[..., None])[..., 0] + u)
    noise = given.process_noise * dt * torch.eye(d, dtype=mean.dtype, device=mean.device)
    covariance[:, :d, :d] = (own + own.mT) / 2 + noise
    covariance[:, :d, d:] = crossed[..., d:]
    covariance[:, d:, :d] = crossed[..., d:].mT


def correct(given: Filter, belief: Belief, y: Float64[Tensor, "row obs"]) -> Float64[Tensor, " row"]:
    """Condition the belief on what is seen, in place.

    Returns: -log N(y - h(x); 0, H P_xx Hᵀ + R) per channel, of the belief before.
    """
    d, emission = given.d, given.emission
    mean, covariance = belief
    expected, spread = mean[:, :d].clone(), covariance[:, :d, :d]
    nll = innovation(emission, expected, spread, y)
    point = expected
    for _ in range(ITERATIONS if emission.kind == "loglinear" else 0):
        precision = emission.precision(point)
        pull = emission.pull(y, point) + _times(precision, point - expected)
        point = expected + _times(spread, torch.linalg.solve(_damped(precision, spread), pull))
    precision = emission.precision(point).expand_as(spread)
    pull = emission.pull(y, point) + _times(precision, point - expected)
    damped, gain = _damped(precision, spread), covariance[..., :d]
    told = gain @ _root(torch.linalg.solve(damped, precision))
    mean += _times(gain, torch.linalg.solve(damped, pull))
    covariance.baddbmm_(told, told.mT, alpha=-1)
    return nll


def innovation(
    channels: Channels, x: Float64[Tensor, "row d"], spread: Float64[Tensor, "row d d"], y: Float64[Tensor, "row obs"]
) -> Float64[Tensor, " row"]:
    """Of an observation, per channel, by a belief about the state."""
    pull, precision = channels.pull(y, x), channels.precision(x)
    return losses.innovation_nll(y - channels.mean(x), channels.variance(x), pull, precision, spread) / y.shape[1]


def begin(given: Filter, belief: Belief, where: Bool[Tensor, " row"], y: Float64[Tensor, "row obs"]) -> None:
    """Where an episode ended, forget the state and see a new one, in place; weights keep their beliefs."""
    if where.is_cpu and not where.any():  # elsewhere the question would wait for the device
        return
    made = Belief(*(part.clone() for part in belief))
    d = given.d
    made.mean[:, :d] = 0
    made.covariance[:, :d] = 0
    made.covariance[..., :d] = 0
    made.covariance[:, :d, :d] = START_VARIANCE * torch.eye(d, dtype=y.dtype, device=y.device)
    correct(given, made, y)
    for now, fresh in zip(belief, made, strict=True):
        now.copy_(torch.where(where.view(-1, *[1] * (now.ndim - 1)), fresh, now))


def start(d: int, rows: int) -> Belief:
    """Of states alone, before anything is seen."""
    variance = START_VARIANCE * torch.eye(d, dtype=torch.float64)
    return Belief(torch.zeros(rows, d, dtype=torch.float64), variance.repeat(rows, 1, 1))


def predict_state(
    given: Filter, belief: Belief, drift: Callable[[Tensor], Tensor], u: Float64[Tensor, "row d"]
) -> None:
    """x <- x + (f(x) + u) dt of a belief about states alone, in place; f's derivatives are central differences."""
    d, (mean, covariance) = given.d, belief
    offsets = DIFFERENCE * torch.eye(d, dtype=mean.dtype, device=mean.device)
    slopes = torch.stack([drift(mean + one) - drift(mean - one) for one in offsets], 2) / (2 * DIFFERENCE)
    moved = torch.eye(d, dtype=mean.dtype, device=mean.device) + given.dt * slopes
    mean += given.dt * (drift(mean) + u)
    covariance.copy_(moved @ covariance @ moved.mT + given.process_noise * given.dt * offsets / DIFFERENCE)


def weight_blocks(d: int, belief: Belief) -> Float64[Tensor, "row d feature feature"]:
    """P_ww,ii of each output i."""
    of_weights = belief.covariance[:, d:, d:].unflatten(2, (d, -1)).unflatten(1, (d, -1))
    return torch.stack([of_weights[:, i, :, i] for i in range(d)], 1)


def _damped(precision: Tensor, spread: Tensor) -> Tensor:
    """I + Λ P_xx."""
    return torch.eye(spread.shape[-1], dtype=spread.dtype, device=spread.device) + precision @ spread


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.matmul(matrix, vector[..., None])[..., 0]


def _root(square: Float64[Tensor, "row d d"]) -> Float64[Tensor, "row d d"]:
    """N of M = N Nᵀ; also where channels are fewer than dimensions, so that M is singular."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return vectors * values.clamp(min=0).sqrt()[:, None]
