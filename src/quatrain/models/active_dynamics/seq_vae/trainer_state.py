"""config, seed -> everything that changes in a learner of seq_vae, before the first transition"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Generator, Tensor

from quatrain.envs.vector_field.observation import Emission
from quatrain.frameworks.torch import AdamState, generator_from_seed, init_adam
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import posterior as posteriors
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.gauge import Effect
from quatrain.models.active_dynamics.seq_vae.network import SeqVae, init_network
from quatrain.models.active_dynamics.seq_vae.posterior import Posterior


class SeqVaeState(NamedTuple):
    """Holds everything that changes in one learner, and its bootstrap.

    effect: of actions on encoded states, last measured. bootstrap: how often each member of an
    ensemble uses each window.
    batch_rng, elbo_rng: states of the generators of batches, and of samples and masks.
    updates: gradient steps so far, on the CPU.
    """

    params: dict[str, Tensor]
    optimizer: AdamState
    hidden: Float[Tensor, "1 hidden"]
    belief: Belief
    posterior: Posterior
    effect: Effect
    bootstrap: Float[Tensor, "start member"]
    batch_rng: UInt8[Tensor, " state"]
    elbo_rng: UInt8[Tensor, " state"]
    updates: Int64[Tensor, ""]


def init_state(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> SeqVaeState:
    """Returns the state before the first transition. It depends on the seed alone."""
    network_seed, batch_seed, elbo_seed, bootstrap_seed = np.random.SeedSequence(seed).spawn(4)
    network = init_network(config, emission, int(network_seed.generate_state(1)[0]))
    params = copy_params(network)
    return SeqVaeState(
        params=params,
        optimizer=init_adam(params),
        hidden=network.encoder.initial_hidden(1).detach(),
        belief=Belief(*(part.detach().clone() for part in network.initial_belief)),
        posterior=posteriors.initial_posterior(network),
        effect=Effect.unknown(*network.control.shape),
        bootstrap=draw_bootstrap(config, generator_from_seed(bootstrap_seed)),
        batch_rng=generator_from_seed(batch_seed).get_state(),
        elbo_rng=generator_from_seed(elbo_seed).get_state(),
        updates=torch.tensor(0, device="cpu"),
    )


def draw_bootstrap(config: ActiveDynamicsConfig, rng: Generator) -> Float[Tensor, "start member"]:
    """Draws how often each member uses the window that begins with a transition.

    Poisson(1) for an ensemble; else 1.
    """
    members = config.network.seq_vae.members
    ones = torch.ones(config.train.transitions, members)
    return torch.poisson(ones, rng) if members > 1 else ones


def copy_params(network: SeqVae) -> dict[str, Tensor]:
    return {name: param.detach().clone() for name, param in network.named_parameters()}
