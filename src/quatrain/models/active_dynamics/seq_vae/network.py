"""config -> the modules of a sequential variational autoencoder, with the initial belief

As in `encoder.Mlp`, samples come last. Networks side by side: the members of an ensemble; those of
several learners are one longer axis.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import (
    GREATEST_EXPONENT,
    SMALLEST_RATE,
    Emission,
    control_effect,
)
from quatrain.frameworks.torch import seeded
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.family import FieldValue
from quatrain.models.active_dynamics.network import make_rbf, prior_weight_variance
from quatrain.models.active_dynamics.seq_vae.encoder import (
    INITIAL_RAW_VARIANCE,
    Belief,
    Encoder,
    Mlp,
    to_variance,
)


class Dynamics(nn.Module):
    """Velocities of states: W φ(x) of radial basis functions, or MLPs."""

    def __init__(self, config: ActiveDynamicsConfig, learners: int = 1) -> None:
        super().__init__()
        network = config.network.seq_vae
        d = config.env.d
        self.members = network.members
        self.rbf = make_rbf(config.network.rbf, d) if network.dynamics == "rbf" else None
        if self.rbf is not None:
            self.weight = nn.Parameter(torch.zeros(learners, d, self.rbf.size))
        else:
            self.layers = Mlp(learners * network.members, (d, *network.dynamics_hidden, d))

    def forward(self, x: Float[Tensor, "network d n"]) -> Float[Tensor, "network d n"]:
        """Computes Σ_c W_c φ_c(x), or the MLPs.

        Sums along one axis of the grid after the other; φ itself is never materialised.
        """
        if self.rbf is None:
            return self.layers(x)
        networks, d, n = x.shape
        side = len(self.rbf.axis)
        differences = x[:, :, None] - self.rbf.axis[:, None]
        factors = torch.exp(differences.square() * (-0.5 / self.rbf.length**2))
        total = self.weight.reshape(networks, -1, side) @ factors[:, -1]
        for axis in reversed(range(d - 1)):
            total = (total.view(networks, -1, side, n) * factors[:, axis, None]).sum(2)
        return total

    def features(self, x: Float[Tensor, "network d n"]) -> Float[Tensor, "network feature n"]:
        """Computes what velocities are linear in: φ, or the last hidden layer and a 1."""
        if self.rbf is None:
            return pad(self.layers.hidden(x), (0, 0, 0, 1), value=1.0)
        return self.rbf.features(x.mT).mT

    def mean_and_features(self, x: Float[Tensor, "learner n d"]) -> FieldValue:
        """Computes the mean over members; an ensemble has no features with uncertain weights."""
        if self.members > 1:
            return FieldValue(self.member_values(x).mean(2), x.new_zeros(*x.shape[:2], 0))
        features = self.features(x.mT)
        if self.rbf is None:
            last_layer = torch.cat([self.layers.weights[-1], self.layers.biases[-1]], 2)
        else:
            last_layer = self.weight
        return FieldValue((last_layer @ features).mT, features.mT)

    def member_values(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n member d"]:
        values = self(x.mT.repeat_interleave(self.members, 0))
        return values.unflatten(0, (-1, self.members)).permute(0, 3, 1, 2)

    def jacobian(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n d d"]:
        """Computes ∂f_i/∂x_j of the mean over members."""
        x = x.mT.repeat_interleave(self.members, 0)
        if self.rbf is None:
            slope = self.layers.jacobian(x)
        else:
            slope = self.weight[:, None] @ self.rbf.with_derivatives(x.mT).derivatives
        return slope.unflatten(0, (-1, self.members)).mean(1)


def load_dynamics(config: ActiveDynamicsConfig, weights: dict[str, Tensor]) -> Dynamics:
    """Returns the fields of several learners, without gradients.

    weights: of each parameter, with axes of learners and of members before all others.
    """
    learners = len(next(iter(weights.values())))
    dynamics = seeded(lambda: Dynamics(config, learners), 0).requires_grad_(False)
    dynamics.load_state_dict({name: value.flatten(0, 1) for name, value in weights.items()})
    return dynamics


class TransitionModel(NamedTuple):
    """x' ~ N(x + f(x) dt + u dt, variance), with a field f for each member of an ensemble."""

    field: Callable[[Tensor], Tensor]
    variance: Float[Tensor, " d"]
    dt: float

    def mean(
        self, x: Float[Tensor, "member d n"], control_dt: Float[Tensor, "d n"]
    ) -> Float[Tensor, "member d n"]:
        """Computes x + f(x) dt + u dt. control_dt: u dt."""
        return torch.add(x + control_dt, self.field(x), alpha=self.dt)

    def noise(self, normal: Float[Tensor, "*step d n"]) -> Float[Tensor, "*step d n"]:
        """Scales standard normal numbers to the noise of a step."""
        return normal * self.variance.sqrt()[:, None]


class MlpChannels(NamedTuple):
    """Channels whose mean is an MLP, with constant noise; an observation model, as `Emission`."""

    mlp: Mlp
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        outputs = self.mlp(x.reshape(-1, x.shape[-1]).T[None])
        return outputs[0].T.reshape(*x.shape[:-1], -1)

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, " obs"]:  # noqa: ARG002
        return self.noise_variance

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        slope = self._jacobian(x)
        return (slope / self.noise_variance[:, None]).mT @ slope

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        scaled = (y - self.mean(x)) / self.noise_variance
        return (scaled[..., None, :] @ self._jacobian(x))[..., 0, :]

    def _jacobian(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs d"]:
        slope = self.mlp.jacobian(x.reshape(-1, x.shape[-1]).T[None])[0]
        return slope.reshape(*x.shape[:-1], *slope.shape[1:])


class Decoder(nn.Module):
    """Channels: the true ones, frozen; or learned ones with their noise, by a layer or an MLP."""

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        channels = config.env.observation.channels
        self.noise = emission.noise
        self.kind = config.network.decoder
        if self.kind == "known":
            self.true = emission
            return
        if self.kind == "mlp":
            self.layers = Mlp(1, (config.env.d, config.network.seq_vae.head, channels))
        else:
            layer = nn.Linear(config.env.d, channels)
            self.weight = layer.weight
            self.bias = layer.bias
        if self.noise == "gaussian":
            self.raw_variance = nn.Parameter(torch.full((channels,), INITIAL_RAW_VARIANCE))

    def channels(self) -> Emission | MlpChannels:
        if self.kind == "known":
            return self.true
        if self.kind == "mlp":
            return MlpChannels(self.layers, to_variance(self.raw_variance))
        is_gaussian = self.noise == "gaussian"
        variance = to_variance(self.raw_variance) if is_gaussian else torch.zeros_like(self.bias)
        return Emission(self.kind, self.noise, self.weight, self.bias, variance)

    def log_prob(
        self, y: Float[Tensor, "obs time batch"], x: Float[Tensor, "member d sample time batch"]
    ) -> Float[Tensor, "member sample time batch"]:
        channels = self.channels()
        samples = x.movedim(1, 0).flatten(1)
        if isinstance(channels, MlpChannels):
            drive = channels.mlp.for_large_batches()(samples[None])[0]
        else:
            drive = torch.addmm(channels.bias[:, None], channels.weight, samples)
        drive = drive.unflatten(1, (len(x), *x.shape[2:])).movedim(1, 0)
        y = y[:, None]
        if self.noise == "poisson":
            return losses.poisson(y, drive.clamp(math.log(SMALLEST_RATE), GREATEST_EXPONENT))
        if isinstance(channels, Emission) and channels.kind == "loglinear":
            drive = drive.clamp(max=GREATEST_EXPONENT).exp()
        return losses.gaussian(y - drive, channels.noise_variance)


class SeqVae(nn.Module):
    """Everything one learner optimises.

    prior_variance: s_w², of the weights that the field is linear in. has_weight_posterior: False
    for an ensemble, whose members show the uncertainty.
    """

    control: Tensor
    horizon_mask_weights: Tensor

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        env = config.env
        network = config.network.seq_vae
        train = config.train.seq_vae
        control = control_effect(env)
        self.dt = env.dt
        self.members = network.members
        self.has_weight_posterior = network.members == 1
        # The order of the modules sets the order of their random draws.
        self.encoder = Encoder(network, env.observation.channels + control.shape[1], env.d)
        self.dynamics = Dynamics(config)
        self.decoder = Decoder(config, emission)
        self.raw_noise = nn.Parameter(torch.full((env.d,), INITIAL_RAW_VARIANCE))
        self.first_mean = nn.Parameter(torch.zeros(env.d))
        self.raw_first_variance = nn.Parameter(torch.zeros(env.d))
        self.prior_variance = _prior_variance(config, self.dynamics)
        weights = losses.horizon_weights(train.horizons, train.decay)
        mask_weights = losses.horizon_mask_weights(weights, train.window)
        self.register_buffer("control", control, persistent=False)
        self.register_buffer("horizon_mask_weights", mask_weights, persistent=False)

    def transition_model(self) -> TransitionModel:
        dynamics = self.dynamics
        field = dynamics if dynamics.rbf is not None else dynamics.layers.for_large_batches()
        return TransitionModel(field, self.step_variance, self.dt)

    @property
    def step_variance(self) -> Float[Tensor, " d"]:
        """Returns s dt, the variance of the noise of a step."""
        return to_variance(self.raw_noise) * self.dt

    @property
    def initial_belief(self) -> Belief:
        return Belief(self.first_mean, to_variance(self.raw_first_variance))

    def weight_prior(self) -> Float[Tensor, ""]:
        """Returns the loss term of the RBF weights; 0 for other dynamics."""
        if self.dynamics.rbf is None:
            return torch.zeros(())
        return losses.weight_prior(self.dynamics.weight, self.prior_variance)


def _prior_variance(config: ActiveDynamicsConfig, dynamics: Dynamics) -> float:
    """Returns s_w²: of layers 1 / inputs, of radial basis functions set by the field's scale."""
    if dynamics.rbf is None:
        return 1 / config.network.seq_vae.dynamics_hidden[-1]
    grid = region_grid(config.env.region_radius, config.env.d)
    return prior_weight_variance(dynamics.rbf, grid, config.network.rbf.prior_field_sd)


def init_network(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> SeqVae:
    """Returns a network whose initial parameters depend on the seed alone."""
    return seeded(lambda: SeqVae(config, emission), seed)
