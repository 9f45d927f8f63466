"""Small filters, and the same in plain dense algebra: one row after the other, with H and R as they
are.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.autograd.functional import jacobian
from torch.distributions import MultivariateNormal

from quatrain.envs.vector_field.observation import Emission
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, Filter
from quatrain.models.active_dynamics.network import Rbf

DT, PROCESS_NOISE = 0.1, 0.03
NONE = torch.empty(0)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def rbf(side: int = 3, d: int = 2, length: float = 1.1) -> Rbf:
    return Rbf(torch.linspace(-2, 2, side, dtype=torch.float64), length, d)


def emission(
    kind: str = "linear", noise: str = "gaussian", channels: int = 5, d: int = 2
) -> Emission:
    """Each channel has a noise of its own."""
    weight, bias = 0.6 * drawn(channels, d, seed=3), 0.4 * drawn(channels, seed=4)
    variance = torch.linspace(0.02, 0.07, channels, dtype=torch.float64)
    if kind == "identity":
        weight, bias = torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    selected: Any = (kind, noise)
    return Emission(
        *selected, weight, bias, variance if noise == "gaussian" else torch.zeros_like(variance)
    )


def filter_of(channels: Any, functions: Any = None) -> Filter:
    return Filter(
        rbf(d=channels.weight.shape[-1]) if functions is None else functions,
        channels,
        DT,
        PROCESS_NOISE,
    )


def some_belief(rows: int, size: int, seed: int = 5) -> Belief:
    """Means and correlated covariances that differ from row to row."""
    draw = 0.4 * drawn(rows, size, size, seed=seed) / math.sqrt(size)
    spread = draw @ draw.mT + 0.01 * torch.eye(size, dtype=torch.float64)
    return Belief(0.3 * drawn(rows, size, seed=seed + 1), (spread + spread.mT) / 2)


def copied(belief: Belief) -> Belief:
    return Belief(*(part.clone() for part in belief))


class Dense(NamedTuple):
    """Mean and covariance of one row; nll: per channel, of what was seen last."""

    mean: Tensor
    covariance: Tensor
    nll: Tensor = NONE


def row_of(belief: Belief, row: int) -> Dense:
    return Dense(belief.mean[row].clone(), belief.covariance[row].clone())


def predicted(step: Callable[[Tensor], Tensor], noise: Tensor, of: Dense) -> Dense:
    """Of any transition of the whole state: its derivatives by autograd."""
    slope = jacobian(step, of.mean)
    return Dense(step(of.mean), slope @ of.covariance @ slope.T + noise)


def joint_step(functions: Rbf, u: Tensor) -> Callable[[Tensor], Tensor]:
    """[x; vec W] -> [x + (W φ(x) + u) dt; vec W], with the functions' formula and a loop over
    outputs.
    """
    d = functions.d
    centres = torch.cartesian_prod(*[functions.axis] * d).reshape(-1, d)

    def step(state: Tensor) -> Tensor:
        x, weights = state[:d], state[d:]
        field_value = torch.exp(-(x - centres).square().sum(1) / (2 * functions.length**2))
        field = [
            weights[i * len(field_value) : (i + 1) * len(field_value)] @ field_value
            for i in range(d)
        ]
        return torch.cat([x + (torch.stack(field) + u) * DT, weights])

    return step


def process_noise(d: int, size: int) -> Tensor:
    """Q dt of states, none of weights."""
    return PROCESS_NOISE * DT * torch.diag((torch.arange(size) < d).double())


def rate_of(channels: Emission, x: Tensor) -> Tensor:
    """h."""
    drive = channels.weight @ x + channels.bias
    return {"identity": x, "linear": drive, "loglinear": drive.exp()}[channels.kind]


def mode(channels: Emission, y: Tensor, of: Dense) -> Tensor:
    """Of -ln p(y|x) + ½ (x - x_p)ᵀ P_xx⁻¹ (x - x_p), by another's search."""
    d = channels.weight.shape[1]
    expected, certainty = of.mean[:d], torch.linalg.inv(of.covariance[:d, :d])
    x = expected.clone().requires_grad_()
    search = torch.optim.LBFGS(
        [x], max_iter=500, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def cost() -> Tensor:
        search.zero_grad()
        h = rate_of(channels, x)
        if channels.noise == "poisson":
            misfit = (h - y * h.log()).sum()
        else:
            misfit = ((y - h).square() / channels.noise_variance).sum() / 2
        result = misfit + (x - expected) @ certainty @ (x - expected) / 2
        result.backward()
        return result

    search.step(cost)
    return x.detach()


def trusted(channels: Any, straight: float) -> dict[str, float]:
    """How near two ways to a belief come: where channels bend, only as near as so few steps lead to
    the mode.
    """
    near = 3e-5 if channels.kind == "loglinear" else straight
    return {"rtol": near, "atol": near}


def corrected(channels: Emission, y: Tensor, of: Dense) -> Dense:
    """The textbook's gain P Hᵀ (H P Hᵀ + R)⁻¹; where channels bend, of what they are around the
    mode.
    """
    (mean, spread, _), d = of, channels.weight.shape[1]
    local, at = spread[:d, :d], mean[:d]

    def observed(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = rate_of(channels, x)
        noise = torch.diag(h if channels.noise == "poisson" else channels.noise_variance)
        return h, jacobian(lambda at: rate_of(channels, at), x), noise

    h, slope, noise = observed(at)
    nll = -MultivariateNormal(h, slope @ local @ slope.T + noise).log_prob(y) / len(y)
    if channels.kind == "loglinear":
        at = mode(channels, y, of)
    h, slope, noise = observed(at)
    gain = spread[:, :d] @ slope.T @ torch.linalg.inv(slope @ local @ slope.T + noise)
    mean = mean + gain @ (y - h - slope @ (mean[:d] - at))
    return Dense(mean, spread - gain @ slope @ spread[:d], nll)


def begun(channels: Emission, y: Tensor, of: Dense) -> Dense:
    """A state of which nothing is known but that it is from U(-1, 1)^d, and what is seen of it."""
    d, (mean, spread) = channels.weight.shape[1], (part.clone() for part in of[:2])
    mean[:d], spread[:d], spread[:, :d] = 0, 0, 0
    spread[:d, :d] = torch.eye(d) / 3
    return corrected(channels, y, Dense(mean, spread))
