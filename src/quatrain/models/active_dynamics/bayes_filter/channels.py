"""what a filter is told of channels: the same ones for all rows, or those that each replicate has learned."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field.observation import Emission


class LearnedChannels(NamedTuple):
    """y = C x + b + noise with a C and b of each row; offers what `Emission` does."""

    weight: Float[Tensor, "learner obs d"]
    bias: Float[Tensor, "learner obs"]
    noise_variance: Float[Tensor, "learner obs"]

    @property
    def kind(self) -> Literal["linear"]:
        return "linear"

    def mean(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner obs"]:
        """C x + b."""
        return torch.einsum("rod,rd->ro", self.weight, x) + self.bias

    def variance(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner obs"]:
        """R, per channel."""
        return self.noise_variance

    def precision(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner d d"]:
        """Λ = Cᵀ R⁻¹ C."""
        return (self.weight / self.noise_variance[..., None]).mT @ self.weight

    def information_vector(
        self, y: Float[Tensor, "learner obs"], x: Float[Tensor, "learner d"]
    ) -> Float[Tensor, "learner d"]:
        """Cᵀ R⁻¹ (y - h(x))."""
        return torch.einsum("rod,ro->rd", self.weight, (y - self.mean(x)) / self.noise_variance)

    def double(self) -> "LearnedChannels":
        """The same in float64."""
        return LearnedChannels(*(part.double() for part in self))


Channels = Emission | LearnedChannels
