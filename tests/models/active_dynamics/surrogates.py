"""Small surrogates with fields of radial basis functions, in plain torch."""

from typing import NamedTuple

import torch
from torch import Tensor

from quatrain.models.active_dynamics.config import Planner
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate

LENGTH, RANGE = 0.6, 2.0


class LatentSurrogate(NamedTuple):
    """A surrogate, and what its functions are made of: weights [row, d, C], centres [C, d]."""

    surrogate: Surrogate
    weights: Tensor
    centres: Tensor


def centres(side: int, d: int = 2) -> Tensor:
    """Of a grid; the first coordinate changes slowest."""
    return torch.cartesian_prod(*[torch.linspace(-RANGE, RANGE, side, dtype=torch.float64)] * d)


def features(x: Tensor, at: Tensor) -> Tensor:
    """exp(-|x - c|²/2l²)."""
    return torch.exp(-(x[..., None, :] - at).square().sum(-1) / (2 * LENGTH**2))


def derivatives(x: Tensor, at: Tensor) -> Tensor:
    """∂φ_c/∂x_k [..., C, d]."""
    return -features(x, at)[..., None] * (x[..., None, :] - at) / LENGTH**2


def region(at: Tensor) -> Tensor:
    """Γ of the points of a grid that are at most 1.5 from the origin."""
    grid = torch.cartesian_prod(*[torch.linspace(-1.5, 1.5, 15, dtype=torch.float64)] * at.shape[1])
    result = features(grid[grid.norm(dim=1) <= 1.5], at)
    return result.T @ result / len(result)


def covariance(size: int, generator: torch.Generator) -> Tensor:
    """Some positive definite matrix, whose rows differ a lot."""
    draw = torch.randn(size, size, dtype=torch.float64, generator=generator) / size**0.5
    return draw @ draw.T * 0.2 + torch.diag(
        torch.rand(size, dtype=torch.float64, generator=generator) * 0.1
    )


def latent_surrogate(rows: int = 3, side: int = 4, seed: int = 0, d: int = 2) -> LatentSurrogate:
    """Rows that believe different fields with different certainty, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    at = centres(side, d)
    weights = torch.randn(rows, d, len(at), dtype=torch.float64, generator=generator) * 0.5
    full = torch.stack([covariance(d * len(at), generator) for _ in range(rows)])
    blocks = full.unflatten(1, (d, -1)).unflatten(3, (d, -1))
    looks = torch.randn(rows, d + 1, d, dtype=torch.float64, generator=generator) * 3
    surrogate = Surrogate(
        state=torch.rand(rows, d, dtype=torch.float64, generator=generator) - 0.5,
        control=torch.eye(d, dtype=torch.float64),
        dt=0.1,
        region_radius=1.5,
        field=lambda x: mean_and_features(x, weights, at),
        jacobian=lambda x: jacobian(x, weights, at),
        members=None,
        covariance=blocks.diagonal(dim1=1, dim2=3).mean(-1),
        full_covariance=full,
        region=region(at),
        step_variance=torch.rand(rows, dtype=torch.float64, generator=generator) * 0.01 + 0.001,
        precision=looks.mT @ looks,
    )
    return LatentSurrogate(surrogate, weights, at)


def mean_and_features(x: Tensor, weights: Tensor, at: Tensor) -> FieldValue:
    result = features(x, at)
    return FieldValue(result @ weights.mT, result)


def jacobian(x: Tensor, weights: Tensor, at: Tensor) -> Tensor:
    return torch.einsum("ric,rnck->rnik", weights, derivatives(x, at))


def single(surrogate: Surrogate) -> Surrogate:
    """In single precision."""
    parts = {
        name: part.float() for name, part in surrogate._asdict().items() if isinstance(part, Tensor)
    }
    called = {
        "field": lambda x: FieldValue(*(part.float() for part in surrogate.field(x.double()))),
        "jacobian": lambda x: surrogate.jacobian(x.double()).float(),
    }
    return surrogate._replace(**parts, **called)


def actions(rows: int, n: int, decisions: int, seed: int = 1, size: int = 2) -> Tensor:
    """Uniform in the box."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, n, decisions, size, dtype=torch.float64, generator=generator) * 2 - 1


def planner(**changes: object) -> Planner:
    """The default, with some values changed."""
    default: dict[str, object] = {
        "kind": "icem",
        "candidates": 32,
        "iterations": 3,
        "horizon": 10,
        "elites": 6,
        "keep": 2,
        "hold": 2,
        "replan_every": 2,
        "alpha": 0.1,
        "init_std": 0.7,
        "colour": 1.0,
        "temperature": 1.0,
    }
    return Planner.model_validate(default | changes)
