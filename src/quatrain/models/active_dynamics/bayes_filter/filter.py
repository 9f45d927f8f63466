"""belief about state and field weights, an action, what was seen next -> the next belief, and how surprising it was.

An extended Kalman filter of s = [x; vec W] (weight (i, c) of f_i = Σ_c W_ic φ_c at d + i·C + c) in information form:
channels enter as d x d matrices alone, so that their number costs nothing once these are made. Where channels bend
(h = exp), the mean moves to the mode of -ln p(y|x) + ½ (x - x_p)ᵀ P_xx⁻¹ (x - x_p), by steps of Gauss and Newton that
are as long as serves best, and the covariance is that of h linearised there.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from quatrain.envs.vector_field.observation import SMALLEST_RATE, Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.bayes_filter.channels import Channels
from quatrain.models.active_dynamics.network import Rbf

START_VARIANCE = 1 / 3
"""Of U(-1, 1), from which each dimension of a state starts."""
ITERATIONS = 8
"""Steps towards the mode, where channels bend."""
LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)
"""Of a step, in units of the one that would be right if channels were linear; all are tried, the best is taken."""
LEAST_COUNT = 0.5
"""In the place of fewer, where a logarithm is taken."""
FLAT = 1e-14
"""Of the largest variance: what is less is none."""
DIFFERENCE = 1e-3
"""Of states between which a slope is taken: a field may come in single precision."""


class Belief(NamedTuple):
    """Mean and covariance of [x; vec W]."""

    mean: Float64[Tensor, "learner n"]
    covariance: Float64[Tensor, "learner n n"]


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
    variance = torch.cat(
        [torch.full((d,), START_VARIANCE), torch.full((weights,), weight_variance)]
    ).double()
    mean = torch.zeros(rows, d + weights, dtype=torch.float64)
    return Belief(mean, torch.diag(variance).expand(rows, -1, -1).clone())


def weights(d: int, belief: Belief) -> Float64[Tensor, "learner d feature"]:
    """W, as a view."""
    return belief.mean[:, d:].unflatten(1, (d, -1))


def predict(given: Filter, belief: Belief, u: Float64[Tensor, "learner d"]) -> None:
    """x <- x + (W φ(x) + u) dt, in place, with F = [I + dt J, dt (I ⊗ φᵀ)] for the covariance F P Fᵀ + Q dt."""
    d, dt = given.d, given.dt
    mean, covariance = belief
    felt, slopes = given.rbf.with_derivatives(mean[:, :d])
    held = weights(d, belief)
    moved = torch.eye(d, dtype=mean.dtype, device=mean.device) + dt * (held @ slopes)
    by_output = covariance[:, d:].unflatten(1, (d, -1))
    crossed = moved @ covariance[:, :d] + dt * torch.matmul(felt[:, None, None], by_output).squeeze(
        2
    )
    by_weights = torch.matmul(crossed[..., d:].unflatten(2, (d, -1)), felt[:, None, :, None])[
        ..., 0
    ]
    own = crossed[..., :d] @ moved.mT + dt * by_weights
    mean[:, :d] += dt * (torch.matmul(held, felt[..., None])[..., 0] + u)
    noise = given.process_noise * dt * torch.eye(d, dtype=mean.dtype, device=mean.device)
    covariance[:, :d, :d] = (own + own.mT) / 2 + noise
    covariance[:, :d, d:] = crossed[..., d:]
    covariance[:, d:, :d] = crossed[..., d:].mT


def correct(
    given: Filter, belief: Belief, y: Float64[Tensor, "learner obs"]
) -> Float64[Tensor, " learner"]:
    """Condition the belief on what is seen, in place.

    Returns: -log N(y - h(x); 0, H P_xx Hᵀ + R) per channel, of the belief before.
    """
    d, emission = given.d, given.emission
    expected, spread = belief.mean[:, :d].clone(), belief.covariance[:, :d, :d]
    nll = innovation(emission, expected, spread, y)
    if emission.kind == "loglinear":
        _update_nonlinear(emission, belief, y)
    else:
        _update_linear(
            belief,
            emission.precision(expected).expand_as(spread),
            emission.information_vector(y, expected),
        )
    return nll


def _update_linear(
    belief: Belief,
    precision: Float64[Tensor, "learner d d"],
    information_vector: Float64[Tensor, "learner d"],
) -> None:
    """Λ and Hᵀ R⁻¹ (y - h(x_p)) are all that is told."""
    d = precision.shape[-1]
    mean, covariance = belief
    damped, gain = _damped(precision, covariance[:, :d, :d]), covariance[..., :d]
    told = gain @ _root(torch.linalg.solve(damped, precision))
    mean += _times(gain, torch.linalg.solve(damped, information_vector))
    covariance.baddbmm_(told, told.mT, alpha=-1)


def _update_nonlinear(
    emission: Emission, belief: Belief, y: Float64[Tensor, "learner obs"]
) -> None:
    """In coordinates b of s = s_p + G b, whose prior is N(0, I): no covariance of the state is inverted or subtracted.

    G = P_:x U v^-½ for P_xx = U diag(v) Uᵀ, and of the state G_x G_xᵀ = P_xx.
    """
    d = emission.weight.shape[1]
    mean, covariance = belief
    values, vectors = torch.linalg.eigh(covariance[:, :d, :d])
    held = torch.where(values > FLAT * values[:, -1:], values, torch.inf)
    led = covariance[..., :d] @ (vectors * held.rsqrt()[:, None])
    expected, reach = mean[:, :d].clone(), led[:, :d].clone()
    found = _mode(emission, expected, reach, y)
    told, turn = _principal(reach.mT @ emission.precision(expected + _times(reach, found)) @ reach)
    mean += _times(led, found)
    turned = led @ turn
    known = turned * (told / (1 + told)).sqrt()[:, None]
    covariance.baddbmm_(known, known.mT, alpha=-1)
    left = (turned / (1 + told)[:, None]) @ turned[:, :d].mT
    covariance[..., :d] = left
    covariance[:, :d] = left.mT


def _mode(
    emission: Emission,
    expected: Float64[Tensor, "learner d"],
    reach: Float64[Tensor, "learner d d"],
    y: Float64[Tensor, "learner obs"],
) -> Float64[Tensor, "learner d"]:
    """argmin_b of -ln p(y | x_p + G_x b) + ½|b|².

    The first step is as if ln y had been seen, with the noise that it has where h = y, so that it starts near states
    that explain y; from afar steps would stop at others.
    """
    lengths = torch.tensor(LENGTHS, dtype=y.dtype, device=y.device)[:, None]
    counts = emission.noise == "poisson"
    seen = torch.maximum(
        y, torch.full_like(y, LEAST_COUNT) if counts else emission.noise_variance.sqrt()
    )
    certainty = seen if counts else seen.square() / emission.noise_variance
    told = certainty * (seen.log() - emission.bias - expected @ emission.weight.T)
    precision, information_vector = (
        (emission.weight.T * certainty[:, None]) @ emission.weight,
        told @ emission.weight,
    )
    found = torch.zeros_like(expected)
    for _ in range(ITERATIONS):
        tried = torch.lerp(
            found[:, None], _newton(reach, precision, information_vector)[:, None], lengths
        )
        cost = (
            _misfit(emission, expected[:, None] + tried @ reach.mT, y[:, None])
            + tried.square().sum(2) / 2
        )
        best = cost.nan_to_num(nan=torch.inf).argmin(1)
        found = tried.take_along_dim(best[:, None, None], 1)[:, 0]
        moved = _times(reach, found)
        precision = emission.precision(expected + moved)
        information_vector = emission.information_vector(y, expected + moved) + _times(
            precision, moved
        )
    return found


def _newton(
    reach: Float64[Tensor, "learner d d"],
    precision: Float64[Tensor, "learner d d"],
    information_vector: Float64[Tensor, "learner d"],
) -> Float64[Tensor, "learner d"]:
    """(I + G_xᵀ Λ G_x)⁻¹ G_xᵀ η."""
    told, turn = _principal(reach.mT @ precision @ reach)
    return _times(turn, _times(turn.mT, _times(reach.mT, information_vector)) / (1 + told))


def _misfit(
    emission: Emission, x: Float64[Tensor, "learner n d"], y: Float64[Tensor, "learner 1 obs"]
) -> Float64[Tensor, "learner n"]:
    """-ln p(y | x), but for a constant."""
    mean = emission.mean(x)
    if emission.noise == "poisson":
        rate = mean.clamp(min=SMALLEST_RATE)
        return (rate - y * rate.log()).sum(2)
    return ((y - mean).square() / emission.noise_variance).sum(2) / 2


def innovation(
    channels: Channels,
    x: Float64[Tensor, "learner d"],
    spread: Float64[Tensor, "learner d d"],
    y: Float64[Tensor, "learner obs"],
) -> Float64[Tensor, " learner"]:
    """Of an observation, per channel, by a belief about the state."""
    information_vector, precision = channels.information_vector(y, x), channels.precision(x)
    return (
        losses.innovation_nll(
            y - channels.mean(x), channels.variance(x), information_vector, precision, spread
        )
        / y.shape[1]
    )


def begin(
    given: Filter,
    belief: Belief,
    where: Bool[Tensor, " learner"],
    y: Float64[Tensor, "learner obs"],
) -> None:
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
    given: Filter,
    belief: Belief,
    drift: Callable[[Tensor], Tensor],
    u: Float64[Tensor, "learner d"],
) -> None:
    """x <- x + (f(x) + u) dt of a belief about states alone, in place; f's derivatives are central differences."""
    d, (mean, covariance) = given.d, belief
    offsets = DIFFERENCE * torch.eye(d, dtype=mean.dtype, device=mean.device)
    slopes = torch.stack([drift(mean + one) - drift(mean - one) for one in offsets], 2) / (
        2 * DIFFERENCE
    )
    moved = torch.eye(d, dtype=mean.dtype, device=mean.device) + given.dt * slopes
    mean += given.dt * (drift(mean) + u)
    covariance.copy_(
        moved @ covariance @ moved.mT + given.process_noise * given.dt * offsets / DIFFERENCE
    )


def weight_blocks(d: int, belief: Belief) -> Float64[Tensor, "learner d feature feature"]:
    """P_ww,ii of each output i."""
    of_weights = belief.covariance[:, d:, d:].unflatten(2, (d, -1)).unflatten(1, (d, -1))
    return torch.stack([of_weights[:, i, :, i] for i in range(d)], 1)


def _damped(precision: Tensor, spread: Tensor) -> Tensor:
    """I + Λ P_xx."""
    return (
        torch.eye(spread.shape[-1], dtype=spread.dtype, device=spread.device) + precision @ spread
    )


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.matmul(matrix, vector[..., None])[..., 0]


def _root(square: Float64[Tensor, "learner d d"]) -> Float64[Tensor, "learner d d"]:
    """N of M = N Nᵀ; also where channels are fewer than dimensions, so that M is singular."""
    values, vectors = _principal(square)
    return vectors * values.sqrt()[:, None]


class _Principal(NamedTuple):
    """M = V diag(λ) Vᵀ."""

    values: Float64[Tensor, "learner d"]
    vectors: Float64[Tensor, "learner d d"]


def _principal(square: Float64[Tensor, "learner d d"]) -> _Principal:
    """Of a matrix that is symmetric and not negative but for rounding."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return _Principal(values.clamp(min=0), vectors)
