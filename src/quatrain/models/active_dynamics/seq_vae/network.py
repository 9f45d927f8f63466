"""a config -> the sequential variational autoencoder: encoder, dynamics, decoder, law of an episode's first state."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.observation import Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.network import Rbf, make_rbf, prior_weight_variance
from quatrain.models.active_dynamics.seq_vae.decoder import make_decoder
from quatrain.models.active_dynamics.seq_vae.dynamics import Dynamics, Law
from quatrain.models.active_dynamics.seq_vae.encoder import (
    FIRST_RAW_VARIANCE,
    Belief,
    Encoder,
    positive,
)


class SeqVae(nn.Module):
    """What one row learns. prior_variance: s_w² of the weights that the field is linear in."""

    control: Tensor
    horizon_mask_weights: Tensor
    nothing: Tensor

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        env, chosen, train = config.env, config.network.seq_vae, config.train.seq_vae
        rbf = make_rbf(config.network.rbf, env.d) if chosen.dynamics == "rbf" else None
        control = torch.eye(env.d) if env.control is None else torch.tensor(env.control)
        self.dt, self.members, self.is_rbf = env.dt, chosen.members, rbf is not None
        self.encoder = Encoder(chosen, env.observation.channels, control.shape[1], env.d)
        self.dynamics = Dynamics(chosen, env.d, rbf)
        self.decoder = make_decoder(config, emission)
        self.raw_noise = nn.Parameter(torch.full((env.d,), FIRST_RAW_VARIANCE))
        self.first_mean = nn.Parameter(torch.zeros(env.d))
        self.raw_first_variance = nn.Parameter(torch.zeros(env.d))
        weights = losses.horizon_weights(train.horizons, train.decay)
        self.register_buffer(
            "horizon_mask_weights",
            losses.horizon_mask_weights(weights, train.window),
            persistent=False,
        )
        self.register_buffer("control", control, persistent=False)
        self.register_buffer("nothing", torch.zeros(()), persistent=False)
        self.prior_variance = _prior_variance(config, rbf)

    def law(self) -> Law:
        """Of a step, as it is now."""
        return Law(self.dynamics.field().for_many(), self.step_variance, self.dt)

    @property
    def step_variance(self) -> Float[Tensor, " d"]:
        """s dt, of the noise of a step."""
        return positive(self.raw_noise) * self.dt

    @property
    def first(self) -> Belief:
        """About the state before anything is seen."""
        return Belief(self.first_mean, positive(self.raw_first_variance))

    def weight_prior(self) -> Float[Tensor, ""]:
        """Of the weights of radial basis functions; 0 without."""
        return (
            losses.weight_prior(self.dynamics.weight, self.prior_variance)
            if self.is_rbf
            else self.nothing
        )


def _prior_variance(config: ActiveDynamicsConfig, rbf: Rbf | None) -> float:
    """Of a last layer that is as wide as its features are many: 1/width; of radial basis functions by the region."""
    env, chosen = config.env, config.network.seq_vae
    if rbf is None:
        return 1 / (env.d if chosen.dynamics == "linear" else chosen.dynamics_hidden[-1])
    return prior_weight_variance(
        rbf, region_grid(env.region_radius, env.d), config.network.rbf.prior_field_sd
    )


def init(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> SeqVae:
    """A network with fresh weights, which depend on the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SeqVae(config, emission)
