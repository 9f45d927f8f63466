"""Small filters, and the same in dense algebra: one learner after the other, with H and R."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.autograd.functional import jacobian
from torch.distributions import MultivariateNormal

from quatrain.envs.vector_field.world import Emission
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, KalmanFilter
from quatrain.models.active_dynamics.network import Rbf

DT, PROCESS_NOISE = 0.1, 0.03


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def rbf(side: int = 3, d: int = 2, length: float = 1.1) -> Rbf:
    return Rbf(torch.linspace(-2, 2, side, dtype=torch.float64), length, d)


def emission(kind: Any = "linear", noise: Any = "gaussian", obs: int = 5, d: int = 2) -> Emission:
    """Returns channels whose noise differs."""
    variance = torch.linspace(0.02, 0.07, obs, dtype=torch.float64)
    if noise == "poisson":
        variance.zero_()
    if kind == "identity":
        return Emission(kind, noise, torch.eye(d).double(), torch.zeros(d).double(), variance)
    weight, bias = 0.6 * drawn(obs, d, seed=3), 0.4 * drawn(obs, seed=4)
    return Emission(kind, noise, weight, bias, variance)


def filter_of(channels: Any) -> KalmanFilter:
    return KalmanFilter(rbf(d=channels.weight.shape[-1]), channels, DT, PROCESS_NOISE)


def some_belief(learners: int, size: int) -> Belief:
    """Returns means and correlated covariances that differ between learners."""
    root = 0.4 * drawn(learners, size, size, seed=5) / math.sqrt(size)
    covariance = root @ root.mT + 0.01 * torch.eye(size).double()
    return Belief(0.3 * drawn(learners, size, seed=6), (covariance + covariance.mT) / 2)


def same(item: Belief, other: Belief) -> bool:
    return all(torch.equal(*parts) for parts in zip(item, other, strict=True))


class Dense(NamedTuple):
    """Holds the belief of one learner, and the surprise per channel of what it observed last."""

    mean: Tensor
    covariance: Tensor
    nll: Tensor = torch.empty(0)


def dense_of(belief: Belief, learner: int) -> Dense:
    return Dense(belief.mean[learner].clone(), belief.covariance[learner].clone())


def predicted(step: Callable[[Tensor], Tensor], noise: Tensor, belief: Dense) -> Dense:
    """Predicts with any step of the whole state; its derivatives are those of autograd."""
    slope = jacobian(step, belief.mean)
    return Dense(step(belief.mean), slope @ belief.covariance @ slope.T + noise)


def joint_step(functions: Rbf, u: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns [x; vec W] -> [x + (W φ(x) + u) dt; vec W], in a loop over outputs."""
    d = functions.d
    centres = torch.cartesian_prod(*[functions.axis] * d).reshape(-1, d)

    def step(state: Tensor) -> Tensor:
        x, weights = state[:d], state[d:]
        features = torch.exp(-(x - centres).square().sum(1) / (2 * functions.length**2))
        field = torch.stack([weight @ features for weight in weights.split(len(features))])
        return torch.cat([x + (field + u) * DT, weights])

    return step


def process_noise(d: int, size: int, variance: float = PROCESS_NOISE) -> Tensor:
    """Returns Q dt of the state, and 0 of the weights."""
    return variance * DT * torch.diag((torch.arange(size) < d).double())


def expected(channels: Emission, x: Tensor) -> Tensor:
    """Computes h(x)."""
    drive = channels.weight @ x + channels.bias
    return {"identity": x, "linear": drive, "loglinear": drive.exp()}[channels.kind]


def mode(channels: Emission, y: Tensor, belief: Dense) -> Tensor:
    """Finds the mode of -ln p(y|x) + ½ (x - x_p)ᵀ P_xx⁻¹ (x - x_p) with another search."""
    d = channels.weight.shape[1]
    prior, precision = belief.mean[:d], torch.linalg.inv(belief.covariance[:d, :d])
    x = prior.clone().requires_grad_()
    search = torch.optim.LBFGS(
        [x], max_iter=500, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def cost() -> Tensor:
        search.zero_grad()
        h = expected(channels, x)
        if channels.noise == "poisson":
            misfit = (h - y * h.log()).sum()
        else:
            misfit = ((y - h).square() / channels.noise_variance).sum() / 2
        total = misfit + (x - prior) @ precision @ (x - prior) / 2
        total.backward()
        return total

    search.step(cost)
    return x.detach()


def corrected(channels: Emission, y: Tensor, belief: Dense) -> Dense:
    """Corrects by the gain P Hᵀ (H P Hᵀ + R)⁻¹, with nonlinear channels as they are at the mode."""
    mean, covariance, _ = belief
    d = channels.weight.shape[1]
    local = covariance[:d, :d]

    def linearised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = expected(channels, x)
        noise = h if channels.noise == "poisson" else channels.noise_variance
        return h, jacobian(lambda at: expected(channels, at), x), torch.diag(noise)

    h, slope, noise = linearised(mean[:d])
    nll = -MultivariateNormal(h, slope @ local @ slope.T + noise).log_prob(y) / len(y)
    at = mode(channels, y, belief) if channels.kind == "loglinear" else mean[:d]
    h, slope, noise = linearised(at)
    gain = covariance[:, :d] @ slope.T @ torch.linalg.inv(slope @ local @ slope.T + noise)
    mean = mean + gain @ (y - h - slope @ (mean[:d] - at))
    return Dense(mean, covariance - gain @ slope @ covariance[:d], nll)


def nothing(d: int) -> Dense:
    """Returns what is known before a first observation, of a state from U(-1, 1)^d."""
    return Dense(torch.zeros(d).double(), torch.eye(d).double() / 3)


def restarted(channels: Emission, y: Tensor, belief: Dense) -> Dense:
    """Returns the weights as they are, beside the state of a first observation."""
    d = channels.weight.shape[1]
    mean, covariance, _ = corrected(channels, y, nothing(d))
    mean = torch.cat([mean, belief.mean[d:]])
    return Dense(mean, torch.block_diag(covariance, belief.covariance[d:, d:]), belief.nll)


def surprises(
    inputs: KalmanFilter,
    drift: Callable[[Tensor], Tensor],
    belief: Dense,
    steps: tuple[Tensor, Tensor],
    restarts: dict[int, Dense],
) -> list[Tensor]:
    """Computes those of a known field's filter; steps: effects of actions, observations after
    them; restarts: time -> belief after it.
    """
    noise, result = process_noise(inputs.d, inputs.d, inputs.process_noise), []
    for time, (u, y) in enumerate(zip(*steps, strict=True)):
        ahead = predicted(lambda x, u=u: x + (drift(x) + u) * inputs.dt, noise, belief)
        belief = corrected(inputs.emission, y, ahead)
        result.append(belief.nll)
        belief = restarts.get(time, belief)
    return result
