"""states -> noisy channels, and the information that an observation has about its state."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import linear

from quatrain.envs.vector_field.config import Observation

GREATEST_EXPONENT = 20.0
SMALLEST_RATE = 1e-6


class Emission(NamedTuple):
    """Holds y ~ p(y | h(x)): identity h = x, linear h = C x + b, loglinear h = exp(min(C x + b,
    20)).

    weight, bias: C and b; the identity and 0 for kind identity. noise_variance: of gaussian noise y
    = h + sd ε, and 0 for counts y ~ Poisson(max(h, 1e-6)). Computes in the dtype of its tensors.
    """

    kind: Literal["identity", "linear", "loglinear"]
    noise: Literal["gaussian", "poisson"]
    weight: Float[Tensor, "obs d"]
    bias: Float[Tensor, " obs"]
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """Computes h(x)."""
        if self.kind == "identity":
            return x
        drive = linear(x, self.weight, self.bias)
        return drive if self.kind == "linear" else drive.clamp(max=GREATEST_EXPONENT).exp()

    def jacobian(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs d"]:
        """Computes H = dh/dx; 0 in channels whose exponent is clamped."""
        return self._slope(x)[..., None] * self.weight

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*#batch obs"]:
        """Returns the variance R of y at x, per channel; the rate if y are counts."""
        if self.noise == "gaussian":
            return self.noise_variance
        return self.mean(x).clamp(min=SMALLEST_RATE)

    def sample(
        self,
        x: Float[Tensor, "*batch d"],
        draws: Float[Tensor, "*batch obs"] | None,
        generator: Generator,
    ) -> Float[Tensor, "*batch obs"]:
        """Draws observations of x: gaussian noise from the standard normal `draws`, if given;
        counts from the generator.
        """
        mean = self.mean(x)
        if self.noise == "poisson":
            return torch.poisson(mean.clamp(min=SMALLEST_RATE), generator)
        if draws is None:
            draws = torch.randn(mean.shape, generator=generator, dtype=x.dtype)
        return mean + self.noise_variance.sqrt() * draws

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Computes Λ = Hᵀ R⁻¹ H, the information of one observation at x; Λ = Cᵀ diag(rate) C for
        counts.
        """
        obs, d = self.weight.shape
        if self.noise == "gaussian" and self.kind != "loglinear":
            return ((self.weight.T / self.noise_variance) @ self.weight).expand(*x.shape[:-1], d, d)
        squares = (self.weight[:, :, None] * self.weight[:, None]).reshape(obs, d * d)
        return ((self._slope(x).square() / self.variance(x)) @ squares).unflatten(-1, (d, d))

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """Computes Hᵀ R⁻¹ (y - h(x)), the gradient of log p(y | x) in x; Cᵀ (y - rate) for
        counts.
        """
        return (self._slope(x) * (y - self.mean(x)) / self.variance(x)) @ self.weight

    def double(self) -> "Emission":
        return self._replace(
            weight=self.weight.double(),
            bias=self.bias.double(),
            noise_variance=self.noise_variance.double(),
        )

    def _slope(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """Computes dh/d(C x + b), per channel."""
        if self.kind != "loglinear":
            return x.new_ones(*x.shape[:-1], len(self.weight))
        drive = linear(x, self.weight, self.bias)
        return drive.clamp(max=GREATEST_EXPONENT).exp() * (drive < GREATEST_EXPONENT)


def draw_emission(config: Observation, d: int, generator: Generator) -> Emission:
    """Draws C ~ N(0, weight_sd²) and b ~ N(0, bias_sd²); kind identity draws nothing and has d
    channels.
    """
    if config.kind == "identity":
        weight = torch.eye(d)
        bias = torch.zeros(d)
    else:
        weight = config.weight_sd * torch.randn(config.channels, d, generator=generator)
        bias = config.bias_sd * torch.randn(config.channels, generator=generator)
    return Emission(
        config.kind,
        config.noise,
        weight,
        bias,
        torch.full_like(bias, config.noise_sd**2 if config.noise == "gaussian" else 0.0),
    )
