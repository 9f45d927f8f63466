"""states -> noisy channels, and back: what an observation tells about the state it was made of."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import linear

from quatrain.envs.vector_field.kinds import EmissionSpec

GREATEST_EXPONENT = 20.0
SMALLEST_RATE = 1e-6


class Emission(NamedTuple):
    """y ~ p(y | h(x)): identity h = x, linear h = C x + b, loglinear h = exp(min(C x + b, 20)).

    weight, bias: C and b; of kind identity the identity and 0. noise_variance: of gaussian noise y = h + sd ε; 0 of
    counts y ~ Poisson(max(h, 1e-6)). Works in the type of its tensors.
    """

    kind: Literal["identity", "linear", "loglinear"]
    noise: Literal["gaussian", "poisson"]
    weight: Float[Tensor, "obs d"]
    bias: Float[Tensor, " obs"]
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """h(x)."""
        if self.kind == "identity":
            return x
        drive = linear(x, self.weight, self.bias)
        return drive if self.kind == "linear" else drive.clamp(max=GREATEST_EXPONENT).exp()

    def jacobian(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs d"]:
        """H = dh/dx; 0 in channels whose exponent is held at its greatest."""
        return self._slope(x)[..., None] * self.weight

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*#batch obs"]:
        """R of y at x, per channel: of counts their rate."""
        return (
            self.noise_variance
            if self.noise == "gaussian"
            else self.mean(x).clamp(min=SMALLEST_RATE)
        )

    def sample(
        self,
        x: Float[Tensor, "*batch d"],
        draws: Float[Tensor, "*batch obs"] | None,
        generator: Generator,
    ) -> Float[Tensor, "*batch obs"]:
        """Observations of x: with the standard normal `draws` where noise is gaussian, else from the generator."""
        mean = self.mean(x)
        if self.noise == "poisson":
            return torch.poisson(mean.clamp(min=SMALLEST_RATE), generator)
        noise = (
            torch.randn(mean.shape, generator=generator, dtype=x.dtype) if draws is None else draws
        )
        return mean + self.noise_variance.sqrt() * noise

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Λ = Hᵀ R⁻¹ H: what one observation at x tells; of counts R is their rate, so that Λ = Cᵀ diag(rate) C."""
        obs, d = self.weight.shape
        if self.noise == "gaussian" and self.kind != "loglinear":
            constant = (self.weight.T / self.noise_variance) @ self.weight
            return constant.expand(*x.shape[:-1], d, d)
        squares = (self.weight[:, :, None] * self.weight[:, None]).reshape(obs, d * d)
        weighed = self._slope(x).square() / self.variance(x) @ squares
        return weighed.unflatten(-1, (d, d))

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """Hᵀ R⁻¹ (y - h(x)): where y pulls the state from x; of counts Cᵀ (y - rate)."""
        return (self._slope(x) * (y - self.mean(x)) / self.variance(x)) @ self.weight

    def double(self) -> "Emission":
        """The same in float64."""
        return self._replace(
            weight=self.weight.double(),
            bias=self.bias.double(),
            noise_variance=self.noise_variance.double(),
        )

    def _slope(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """dh/d(C x + b), per channel."""
        if self.kind != "loglinear":
            return x.new_ones(*x.shape[:-1], len(self.weight))
        drive = linear(x, self.weight, self.bias)
        return drive.clamp(max=GREATEST_EXPONENT).exp() * (drive < GREATEST_EXPONENT)


def draw_emission(spec: EmissionSpec, d: int, generator: Generator) -> Emission:
    """C ~ N(0, weight_sd²) and b ~ N(0, bias_sd²); of kind identity nothing is drawn, and channels = d."""
    if spec.kind == "identity":
        weight, bias = torch.eye(d), torch.zeros(d)
    else:
        weight = spec.weight_sd * torch.randn(spec.channels, d, generator=generator)
        bias = spec.bias_sd * torch.randn(spec.channels, generator=generator)
    variance = spec.noise_sd**2 if spec.noise == "gaussian" else 0.0
    return Emission(spec.kind, spec.noise, weight, bias, torch.full_like(bias, variance))
