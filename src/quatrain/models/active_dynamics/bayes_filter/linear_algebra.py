"""matrices of several learners -> products, eigenvalues and roots"""

import torch
from jaxtyping import Float64
from torch import Tensor

# Eigenvalues below this share of the largest count as 0.
_RELATIVE_ZERO = 1e-14


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.matmul(matrix, vector[..., None])[..., 0]


def sqrt_psd(square: Float64[Tensor, "learner d d"]) -> Float64[Tensor, "learner d d"]:
    """Computes N of M = N Nᵀ, also for a singular M (fewer channels than dimensions)."""
    values, vectors = eigh_psd(square)
    return vectors * values.sqrt()[:, None]


def eigh_psd(
    square: Float64[Tensor, "learner d d"],
) -> tuple[Float64[Tensor, "learner d"], Float64[Tensor, "learner d d"]]:
    """Returns λ and V of M = V diag(λ) Vᵀ; M is positive semidefinite up to rounding."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return values.clamp(min=0), vectors


def inverse_roots(values: Float64[Tensor, "learner d"]) -> Float64[Tensor, "learner d"]:
    """Computes λ^-½ of ascending eigenvalues; 0 where λ counts as 0."""
    positive = values > _RELATIVE_ZERO * values[:, -1:]
    return torch.where(positive, values, torch.inf).rsqrt()
