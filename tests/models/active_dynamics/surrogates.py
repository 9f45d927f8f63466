"""Small surrogates with fields of radial basis functions, in plain torch."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.config import Planner
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate
from tests.conftest import params_with
from tests.models.active_dynamics.filters import drawn

LENGTH, RANGE = 0.6, 2.0


class RbfSurrogate(NamedTuple):
    """Holds a surrogate, and what its functions are made of."""

    surrogate: Surrogate
    weights: Tensor
    centres: Tensor


def grid(side: int, reach: float, d: int) -> Tensor:
    """Returns points [point, d]; the first coordinate changes slowest."""
    return torch.cartesian_prod(*[torch.linspace(-reach, reach, side).double()] * d)


def features(x: Tensor, centres: Tensor) -> Tensor:
    """Computes exp(-|x - c|²/2l²)."""
    square = (x[..., None, :] - centres).square().sum(-1)
    return torch.exp(-square / (2 * LENGTH**2))


def derivatives(x: Tensor, centres: Tensor) -> Tensor:
    """Computes ∂φ_c/∂x_k [..., C, d]."""
    return -features(x, centres)[..., None] * (x[..., None, :] - centres) / LENGTH**2


def rbf_surrogate(learners: int = 3, side: int = 4, seed: int = 0, d: int = 2) -> RbfSurrogate:
    """Returns learners with different fields and covariances, in double precision."""
    centres, points = grid(side, RANGE, d), grid(15, 1.5, d)
    count = d * len(centres)
    weights = 0.5 * drawn(learners, d, len(centres), seed=seed)
    root = drawn(learners, count, count, seed=seed + 1) / count**0.5
    spread = 0.1 * drawn(learners, count, seed=seed + 2).square()
    full = root @ root.mT * 0.2 + torch.diag_embed(spread)
    blocks = full.unflatten(1, (d, -1)).unflatten(3, (d, -1))
    rows = 3 * drawn(learners, d + 1, d, seed=seed + 3)
    region = features(points[points.norm(dim=1) <= 1.5], centres)
    surrogate = Surrogate(
        state=0.2 * drawn(learners, d, seed=seed + 4),
        control=torch.eye(d).double(),
        dt=0.1,
        region_radius=1.5,
        field=lambda x: FieldValue(features(x, centres) @ weights.mT, features(x, centres)),
        jacobian=lambda x: torch.einsum("ric,rnck->rnik", weights, derivatives(x, centres)),
        members=None,
        covariance=blocks.diagonal(dim1=1, dim2=3).mean(-1),
        full_covariance=full,
        region=region.T @ region / len(region),
        step_variance=0.001 + 0.005 * drawn(learners, seed=seed + 5).square(),
        precision=rows.mT @ rows,
    )
    return RbfSurrogate(surrogate, weights, centres)


def single(surrogate: Surrogate) -> Surrogate:
    """Returns the surrogate in single precision."""
    parts = {
        name: part.float() for name, part in surrogate._asdict().items() if isinstance(part, Tensor)
    }
    return surrogate._replace(
        **parts,
        field=lambda x: FieldValue(*(part.float() for part in surrogate.field(x.double()))),
        jacobian=lambda x: surrogate.jacobian(x.double()).float(),
    )


def actions(learners: int, n: int, decisions: int, size: int = 2) -> Tensor:
    """Returns uniform actions in the box."""
    generator = Generator().manual_seed(1)
    shape = (learners, n, decisions, size)
    return torch.rand(shape, dtype=torch.float64, generator=generator) * 2 - 1


def planner(**changes: object) -> Planner:
    committed = params_with({}).active_dynamics.train.planner.model_dump()
    return Planner.model_validate(committed | changes)
