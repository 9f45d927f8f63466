"""config -> the modules of a sequential variational autoencoder, with the initial belief"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.observation import Emission
from quatrain.envs.vector_field.world import control_effect
from quatrain.frameworks.torch import seeded
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.network import Rbf, make_rbf, prior_weight_variance
from quatrain.models.active_dynamics.seq_vae.decoder import make_decoder
from quatrain.models.active_dynamics.seq_vae.dynamics import Dynamics, TransitionModel
from quatrain.models.active_dynamics.seq_vae.encoder import (
    INITIAL_RAW_VARIANCE,
    Belief,
    Encoder,
    to_variance,
)


class SeqVae(nn.Module):
    """Holds everything one learner optimises.

    prior_variance: s_w², of the weights that the field is linear in. has_weight_posterior: False
    for an ensemble, whose members show the uncertainty.
    """

    control: Tensor
    horizon_mask_weights: Tensor
    zero: Tensor

    def __init__(self, config: ActiveDynamicsConfig, emission: Emission) -> None:
        super().__init__()
        env = config.env
        network = config.network.seq_vae
        train = config.train.seq_vae
        rbf = make_rbf(config.network.rbf, env.d) if network.dynamics == "rbf" else None
        control = control_effect(env)
        self.dt = env.dt
        self.members = network.members
        self.has_weight_posterior = network.members == 1
        self.is_rbf = rbf is not None
        self.prior_variance = _prior_variance(config, rbf)
        # The order of the modules sets the order of their random draws.
        self.encoder = Encoder(network, env.observation.channels, control.shape[1], env.d)
        self.dynamics = Dynamics(network, env.d, rbf)
        self.decoder = make_decoder(config, emission)
        self.raw_noise = nn.Parameter(torch.full((env.d,), INITIAL_RAW_VARIANCE))
        self.first_mean = nn.Parameter(torch.zeros(env.d))
        self.raw_first_variance = nn.Parameter(torch.zeros(env.d))
        weights = losses.horizon_weights(train.horizons, train.decay)
        constants = {
            "horizon_mask_weights": losses.horizon_mask_weights(weights, train.window),
            "control": control,
            "zero": torch.zeros(()),
        }
        for name, constant in constants.items():
            self.register_buffer(name, constant, persistent=False)

    def transition_model(self) -> TransitionModel:
        field = self.dynamics.field().for_large_batches()
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
        return (
            losses.weight_prior(self.dynamics.weight, self.prior_variance)
            if self.is_rbf
            else self.zero
        )


def _prior_variance(config: ActiveDynamicsConfig, rbf: Rbf | None) -> float:
    """Returns s_w²: of layers 1 / inputs, of radial basis functions set by the field's scale."""
    env = config.env
    network = config.network
    if rbf is not None:
        grid = region_grid(env.region_radius, env.d)
        return prior_weight_variance(rbf, grid, network.rbf.prior_field_sd)
    return 1 / network.seq_vae.dynamics_hidden[-1]


def init_network(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> SeqVae:
    """Returns a network whose initial parameters depend on the seed alone."""
    return seeded(lambda: SeqVae(config, emission), seed)
