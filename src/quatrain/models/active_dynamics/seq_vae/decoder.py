"""states -> how likely their observations are: by the known channels, or by learned ones

As in `layers`, samples come last: dimension, sample, time, batch.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.envs.vector_field.observation import GREATEST_EXPONENT, SMALLEST_RATE, Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae.encoder import FIRST_RAW_VARIANCE, positive
from quatrain.models.active_dynamics.seq_vae.layers import LayerParameters, Layers


class Decoder(nn.Module):
    """Channels whose parameters are those of an `Emission`: frozen, or learned with the variance of their noise."""

    weight: Tensor
    bias: Tensor
    noise_variance: Tensor

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        seen, chosen = config.env.observation, config.network.decoder
        self.kind: Literal["identity", "linear", "loglinear"]
        self.noise, self.known = seen.noise, chosen == "known"
        if chosen == "known":
            self.kind = emission.kind
            for name in ("weight", "bias", "noise_variance"):
                self.register_buffer(name, getattr(emission, name), persistent=False)
            return
        assert chosen != "mlp"
        self.kind = chosen
        layer = nn.Linear(config.env.d, seen.channels)
        self.weight, self.bias = layer.weight, layer.bias
        if seen.noise == "gaussian":
            self.raw_variance = nn.Parameter(torch.full((seen.channels,), FIRST_RAW_VARIANCE))

    def channels(self) -> Emission:
        """The channels as they are now."""
        if self.known:
            variance = self.noise_variance
        elif self.noise == "gaussian":
            variance = positive(self.raw_variance)
        else:
            variance = torch.zeros_like(self.bias)
        return Emission(self.kind, self.noise, self.weight, self.bias, variance)

    def log_prob(
        self, y: Float[Tensor, "obs time batch"], x: Float[Tensor, "member d sample time batch"]
    ) -> Float[Tensor, "member sample time batch"]:
        """ln p(y | x)."""
        channels = self.channels()
        drive = torch.baddbmm(
            channels.bias[:, None], channels.weight.expand(len(x), -1, -1), x.flatten(2)
        )
        drive = drive.view(len(x), len(y), *x.shape[2:])
        if channels.noise == "poisson":
            return losses.poisson(
                y[:, None], drive.clamp(math.log(SMALLEST_RATE), GREATEST_EXPONENT)
            )
        mean = drive.clamp(max=GREATEST_EXPONENT).exp() if channels.kind == "loglinear" else drive
        return losses.gaussian(y[:, None] - mean, channels.noise_variance)


class MlpChannels(NamedTuple):
    """Offers what `Emission` does. noise_variance: of each channel."""

    layers: Layers
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """h(x)."""
        return self.layers(x.reshape(-1, x.shape[-1]).T[None])[0].T.reshape(*x.shape[:-1], -1)

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, " obs"]:  # noqa: ARG002  as of counts
        """R, per channel."""
        return self.noise_variance

    def jacobian(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs d"]:
        """H = dh/dx."""
        found = self.layers.jacobian(x.reshape(-1, x.shape[-1]).T[None])[0]
        return found.reshape(*x.shape[:-1], *found.shape[1:])

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Λ = Hᵀ R⁻¹ H."""
        slope = self.jacobian(x)
        return (slope / self.noise_variance[:, None]).mT @ slope

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """Hᵀ R⁻¹ (y - h(x))."""
        return (((y - self.mean(x)) / self.noise_variance)[..., None, :] @ self.jacobian(x))[
            ..., 0, :
        ]


class MlpDecoder(nn.Module):
    """Any smooth channels, with gaussian noise of a variance each."""

    def __init__(self, config: ActiveDynamicsConfig) -> None:
        super().__init__()
        units, channels = config.network.seq_vae.head, config.env.observation.channels
        self.layers = LayerParameters(1, (config.env.d, units, channels))
        self.raw_variance = nn.Parameter(torch.full((channels,), FIRST_RAW_VARIANCE))

    def log_prob(
        self, y: Float[Tensor, "obs time batch"], x: Float[Tensor, "member d sample time batch"]
    ) -> Float[Tensor, "member sample time batch"]:
        """ln p(y | x)."""
        given = x.movedim(1, 0).flatten(1)[None]
        mean = (
            self.layers.now()
            .for_many()(given)[0]
            .unflatten(1, (len(x), *x.shape[2:]))
            .movedim(1, 0)
        )
        return losses.gaussian(y[:, None] - mean, positive(self.raw_variance))

    def channels(self) -> MlpChannels:
        """As they are now."""
        return MlpChannels(self.layers.now(), positive(self.raw_variance))


def make_decoder(config: ActiveDynamicsConfig, emission: Emission) -> Decoder | MlpDecoder:
    """The decoder of a config. emission: the true channels, which only a known decoder looks at."""
    return MlpDecoder(config) if config.network.decoder == "mlp" else Decoder(config, emission)
