"""states -> log-likelihood of their observations, by the known channels or by learned ones

As in `layers`, samples come last. Axes: dimension, sample, time, batch.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.envs.vector_field.observation import GREATEST_EXPONENT, SMALLEST_RATE, Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae.encoder import INITIAL_RAW_VARIANCE, to_variance
from quatrain.models.active_dynamics.seq_vae.layers import MlpParameters, StackedMlp


class Decoder(nn.Module):
    """Holds the parameters of an `Emission`, either frozen or learned with its noise variance."""

    weight: Tensor
    bias: Tensor
    noise_variance: Tensor
    kind: Literal["identity", "linear", "loglinear"]

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        observation = config.env.observation
        kind = config.network.decoder
        self.noise = observation.noise
        self.is_known = kind == "known"
        if kind == "known":
            self.kind = emission.kind
            for name in ("weight", "bias", "noise_variance"):
                self.register_buffer(name, getattr(emission, name), persistent=False)
            return
        assert kind != "mlp"
        self.kind = kind
        layer = nn.Linear(config.env.d, observation.channels)
        self.weight = layer.weight
        self.bias = layer.bias
        if observation.noise == "gaussian":
            self.raw_variance = _raw_variance(observation.channels)

    def channels(self) -> Emission:
        variance = self.noise_variance if self.is_known else torch.zeros_like(self.bias)
        if self.noise == "gaussian" and not self.is_known:
            variance = to_variance(self.raw_variance)
        return Emission(self.kind, self.noise, self.weight, self.bias, variance)

    def log_prob(
        self, y: Float[Tensor, "obs time batch"], x: Float[Tensor, "member d sample time batch"]
    ) -> Float[Tensor, "member sample time batch"]:
        channels = self.channels()
        weight = channels.weight.expand(len(x), -1, -1)
        drive = torch.baddbmm(channels.bias[:, None], weight, x.flatten(2))
        drive = drive.view(len(x), len(y), *x.shape[2:])
        y = y[:, None]
        if channels.noise == "poisson":
            return losses.poisson(y, drive.clamp(math.log(SMALLEST_RATE), GREATEST_EXPONENT))
        mean = drive.clamp(max=GREATEST_EXPONENT).exp() if channels.kind == "loglinear" else drive
        return losses.gaussian(y - mean, channels.noise_variance)


class MlpChannels(NamedTuple):
    """Holds channels whose mean is an MLP, with constant noise; has the methods of `Emission`."""

    mlp: StackedMlp
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        outputs = self.mlp(x.reshape(-1, x.shape[-1]).T[None])
        return outputs[0].T.reshape(*x.shape[:-1], -1)

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, " obs"]:  # noqa: ARG002
        return self.noise_variance

    def jacobian(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs d"]:
        jacobian = self.mlp.jacobian(x.reshape(-1, x.shape[-1]).T[None])
        return jacobian[0].reshape(*x.shape[:-1], *jacobian.shape[2:])

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        slope = self.jacobian(x)
        return (slope / self.noise_variance[:, None]).mT @ slope

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        scaled = (y - self.mean(x)) / self.noise_variance
        return (scaled[..., None, :] @ self.jacobian(x))[..., 0, :]


class MlpDecoder(nn.Module):
    def __init__(self, config: ActiveDynamicsConfig) -> None:
        super().__init__()
        channels = config.env.observation.channels
        self.layers = MlpParameters(1, (config.env.d, config.network.seq_vae.head, channels))
        self.raw_variance = _raw_variance(channels)

    def log_prob(
        self, y: Float[Tensor, "obs time batch"], x: Float[Tensor, "member d sample time batch"]
    ) -> Float[Tensor, "member sample time batch"]:
        outputs = self.layers.mlp().for_large_batches()(x.movedim(1, 0).flatten(1)[None])[0]
        mean = outputs.unflatten(1, (len(x), *x.shape[2:])).movedim(1, 0)
        return losses.gaussian(y[:, None] - mean, to_variance(self.raw_variance))

    def channels(self) -> MlpChannels:
        return MlpChannels(self.layers.mlp(), to_variance(self.raw_variance))


def _raw_variance(channels: int) -> nn.Parameter:
    return nn.Parameter(torch.full((channels,), INITIAL_RAW_VARIANCE))


def make_decoder(config: ActiveDynamicsConfig, emission: Emission) -> Decoder | MlpDecoder:
    """Returns the config's decoder. emission: the true channels, used by a known decoder only."""
    return MlpDecoder(config) if config.network.decoder == "mlp" else Decoder(config, emission)
