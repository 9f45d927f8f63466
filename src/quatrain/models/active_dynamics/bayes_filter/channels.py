"""states -> observations: the true channels, or those identified for each replicate."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field.observation import Emission


class LearnedChannels(NamedTuple):
    """Holds C, b and R of y = C x + b + noise for each learner, with the methods of `Emission`."""

    weight: Float[Tensor, "learner obs d"]
    bias: Float[Tensor, "learner obs"]
    noise_variance: Float[Tensor, "learner obs"]

    @property
    def kind(self) -> Literal["linear"]:
        return "linear"

    def mean(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner obs"]:
        """Computes C x + b."""
        return torch.einsum("rod,rd->ro", self.weight, x) + self.bias

    def variance(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner obs"]:
        """Returns the diagonal of R."""
        return self.noise_variance

    def precision(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner d d"]:
        """Computes Λ = Cᵀ R⁻¹ C."""
        return (self.weight / self.noise_variance[..., None]).mT @ self.weight

    def information_vector(
        self, y: Float[Tensor, "learner obs"], x: Float[Tensor, "learner d"]
    ) -> Float[Tensor, "learner d"]:
        """Computes η = Cᵀ R⁻¹ (y - h(x))."""
        residual = (y - self.mean(x)) / self.noise_variance
        return torch.einsum("rod,ro->rd", self.weight, residual)

    def double(self) -> "LearnedChannels":
        return LearnedChannels(*(part.double() for part in self))


Channels = Emission | LearnedChannels
