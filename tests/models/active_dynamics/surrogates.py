"""Small surrogates with fields of radial basis functions, in double precision."""

import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.config import Planner
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate
from quatrain.models.active_dynamics.network import region_products
from tests.conftest import params_with
from tests.models.active_dynamics.filters import drawn, rbf


def rbf_surrogate(learners: int = 3, side: int = 4, d: int = 2) -> Surrogate:
    """Returns learners with different fields and correlated weights."""
    functions = rbf(side, d, length=0.6)
    count = d * functions.size
    weights = 0.5 * drawn(learners, d, functions.size)
    root = drawn(learners, count, count, seed=1) / count**0.5
    spread = 0.1 * drawn(learners, count, seed=2).square()
    full = root @ root.mT * 0.2 + torch.diag_embed(spread)
    blocks = full.unflatten(1, (d, -1)).unflatten(3, (d, -1))
    rows = 3 * drawn(learners, d + 1, d, seed=3)

    def field(x: Tensor) -> FieldValue:
        features = functions.features(x)
        return FieldValue(features @ weights.mT, features)

    return Surrogate(
        state=0.2 * drawn(learners, d, seed=4),
        control=torch.eye(d).double(),
        dt=0.1,
        region_radius=1.5,
        field=field,
        jacobian=lambda x: weights[:, None] @ functions.with_derivatives(x).derivatives,
        members=None,
        covariance=blocks.diagonal(dim1=1, dim2=3).mean(-1),
        full_covariance=full,
        region=region_products(functions.features(region_grid(1.5, d).double())),
        step_variance=0.001 + 0.005 * drawn(learners, seed=5).square(),
        precision=rows.mT @ rows,
    )


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
