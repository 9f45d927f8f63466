"""states -> radial basis functions, whose weighted sum is a vector field; prior of the weights."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.config import RbfGrid


class Rbf(NamedTuple):
    """Holds φ_c(x) = exp(-|x - c|²/2l²), with centres c on the product grid of `axis`."""

    axis: Float[Tensor, " side"]
    length: float
    d: int

    @property
    def size(self) -> int:
        """Returns the number of features: side ** d."""
        return len(self.axis) ** self.d

    def features(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch feature"]:
        """Computes φ as products of d·side exponentials; the first coordinate changes slowest."""
        return _product(self._along_axes(x))

    def with_derivatives(self, x: Float[Tensor, "*batch d"]) -> "Derived":
        along = self._along_axes(x)
        slope = -along * (x[..., None] - self.axis) / self.length**2
        derivatives = []
        for axis in range(self.d):
            factors = along.clone()
            factors[..., axis, :] = slope[..., axis, :]
            derivatives.append(_product(factors))
        return Derived(_product(along), torch.stack(derivatives, -1))

    def to(self, dtype: torch.dtype) -> "Rbf":
        return self._replace(axis=self.axis.to(dtype))

    def _along_axes(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d side"]:
        scaled = x[..., None] - self.axis
        return (scaled * scaled).mul_(-0.5 / self.length**2).exp_()


class Derived(NamedTuple):
    """Holds φ(x) and ∂φ_c/∂x_k."""

    features: Float[Tensor, "*batch feature"]
    derivatives: Float[Tensor, "*batch feature d"]


def _product(along: Float[Tensor, "*batch d side"]) -> Float[Tensor, "*batch feature"]:
    product = along[..., 0, :]
    for axis in range(1, along.shape[-2]):
        product = (product[..., :, None] * along[..., axis, None, :]).flatten(-2)
    return product


def make_rbf(config: RbfGrid, d: int) -> Rbf:
    axis = torch.linspace(-config.range, config.range, config.side)
    return Rbf(axis, config.length, d)


def prior_weight_variance(rbf: Rbf, grid: Float[Tensor, "point d"], prior_field_sd: float) -> float:
    """Computes s_w² such that the field has this standard deviation, averaged over the grid.

    s_w² = prior_field_sd² / mean_g Σ_c φ_c(g)².
    """
    return float(prior_field_sd**2 / rbf.features(grid).double().square().sum(-1).mean())


def region_products(features: Float[Tensor, "point feature"]) -> Float[Tensor, "feature feature"]:
    """Computes Γ = mean_g φ(g) φ(g)ᵀ."""
    return features.T @ features / len(features)
