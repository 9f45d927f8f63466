"""saved state of one seed <-> the network, optimiser and random generators that train it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Generator, Tensor
from torch.optim import Adam

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.frameworks.torch import adam_state
from quatrain.frameworks.torch.rng import generator_from_state
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor
from quatrain.models.actor_critic.ppo.process_group import SINGLE_PROCESS, ProcessGroup
from quatrain.models.actor_critic.ppo.rollout import (
    RolloutState,
    allocate_rollout,
    init_rollout_state,
)
from quatrain.replay.rollouts.buffer import Rollout

# The return of weights before their first evaluation: below any other, and finite as files need it.
NOT_EVALUATED = torch.finfo(torch.float32).min


class RankState(NamedTuple):
    """Holds what changes in one process beside the network: colonies, running episodes, states of
    generators.
    """

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    episode_means: Float[Tensor, " statistic"]
    environment: UInt8[Tensor, " state"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


class Best(NamedTuple):
    """Holds the weights of highest return in a periodic evaluation, with which the policy is
    evaluated and served; without such evaluations the last weights.
    """

    params: dict[str, Tensor]
    validation_return: Float[Tensor, ""]
    validation_success: Float[Tensor, ""]
    iteration: Int64[Tensor, ""]


class SeedState(NamedTuple):
    """Holds everything that changes in one seed's learner, and the scale of observations that its
    weights expect.
    """

    params: dict[str, Tensor]
    best: Best
    scale: Scale
    optimizer: adam_state.AdamState
    ranks: tuple[RankState, ...]
    iterations: Int64[Tensor, ""]
    updates: Int64[Tensor, ""]


@dataclass
class Trainer:
    """Holds one seed's learner in training; `iteration.run_iteration` changes it in place."""

    actor: Actor
    network: Network
    best: Best
    optimizer: Adam
    rollout_state: RolloutState
    order: Generator
    rollout: Rollout
    iterations: int
    updates: int
    process_group: ProcessGroup

    @property
    def config(self) -> ActorCriticConfig:
        return self.actor.config


def from_state(
    config: ActorCriticConfig,
    world: World,
    seed: SeedState,
    process_group: ProcessGroup = SINGLE_PROCESS,
    rollout: Rollout | None = None,
) -> Trainer:
    """Returns a trainer that continues from the state, which stays unchanged.

    Trainers that run in turn may share the memory of `rollout`; without one it is allocated.
    """
    network = load_network(config, seed.params)
    optimizer = Adam(
        network.parameters(),
        lr=config.train.learning_rate,
        eps=config.train.adam_eps,
        fused=True,
    )
    adam_state.load_state(optimizer, network, seed.optimizer)
    rank = seed.ranks[process_group.rank]
    if rollout is None:
        rollout = allocate_rollout(config, config.train.num_envs // process_group.size)
    return Trainer(
        actor=make_actor(config, world, seed.scale, network),
        network=network,
        best=seed.best,
        optimizer=optimizer,
        rollout_state=RolloutState(
            colonies=rank.colonies,
            components=rank.components,
            episode_means=rank.episode_means,
            environment=generator_from_state(rank.environment),
            policy=generator_from_state(rank.policy),
        ),
        order=generator_from_state(rank.order),
        rollout=rollout,
        iterations=int(seed.iterations),
        updates=int(seed.updates),
        process_group=process_group,
    )


def load_network(config: ActorCriticConfig, params: dict[str, Tensor]) -> Network:
    with torch.random.fork_rng():  # initialising the network draws from torch's global generator
        network = networks.make(config)
    network.load_state_dict(params)
    return network


def load_actor(config: ActorCriticConfig, world: World, seed: SeedState) -> Actor:
    """Returns the policy with the best weights."""
    return make_actor(config, world, seed.scale, load_network(config, seed.best.params))


def to_state(trainer: Trainer, ranks: tuple[RankState, ...]) -> SeedState:
    """Returns the state of a trainer, copied, with the states of all ranks."""
    return SeedState(
        params=copy_params(trainer),
        best=trainer.best,
        scale=trainer.actor.scale,
        optimizer=adam_state.get_state(trainer.optimizer, trainer.network),
        ranks=ranks,
        iterations=torch.tensor(trainer.iterations),
        updates=torch.tensor(trainer.updates),
    )


def copy_params(trainer: Trainer) -> dict[str, Tensor]:
    return {name: param.clone() for name, param in trainer.network.state_dict().items()}


def to_rank_state(state: RolloutState, order: Generator) -> RankState:
    """Returns a process's part of the state; colonies are never changed in place, so they are not
    copied.
    """
    return RankState(
        colonies=state.colonies,
        components=state.components,
        episode_means=state.episode_means,
        environment=state.environment.get_state(),
        policy=state.policy.get_state(),
        order=order.get_state(),
    )


def init_seed_state(
    config: ActorCriticConfig,
    world: World,
    scale: Scale,
    network: Network,
    generators: list[list[Generator]],
) -> SeedState:
    """Returns a state before the first iteration.

    Args:
        generators: for each rank those of environment, policy and the order of minibatches.
    """
    params = dict(network.state_dict())
    learnt = {name: params[name] for name, _ in network.named_parameters()}
    actor = make_actor(config, world, scale, network)
    colonies = config.train.num_envs // config.train.world_size
    ranks = [
        to_rank_state(init_rollout_state(actor, colonies, environment, policy), order)
        for environment, policy, order in generators
    ]
    return SeedState(
        params=params,
        best=Best(params, torch.tensor(NOT_EVALUATED), torch.tensor(0.0), torch.tensor(0)),
        scale=scale,
        optimizer=adam_state.init_state(learnt),
        ranks=tuple(ranks),
        iterations=torch.tensor(0),
        updates=torch.tensor(0),
    )
