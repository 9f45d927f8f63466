"""one seed's part of a learner <-> the network, optimiser and generators that work on it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Generator, Tensor
from torch.optim import Adam

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.frameworks.torch import adam_state
from quatrain.frameworks.torch.adam_state import AdamState
from quatrain.frameworks.torch.rng import generator_from_state
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor
from quatrain.models.actor_critic.ppo.playing import Player, empty_rollout, first_player
from quatrain.models.actor_critic.ppo.team import ALONE, Team
from quatrain.replay.rollouts.buffer import Rollout


class Rank(NamedTuple):
    """What changes in one process beside the network: its colonies, running episodes, and generators."""

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    ended: Float[Tensor, " told"]
    environment: UInt8[Tensor, " state"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


class Seed(NamedTuple):
    """Everything that changes in one seed's learner; and the scale of what it sees, which its weights are for."""

    params: dict[str, Tensor]
    scale: Scale
    optimizer: AdamState
    ranks: tuple[Rank, ...]
    iterations: Int64[Tensor, ""]
    updates: Int64[Tensor, ""]


@dataclass
class Agent:
    """One seed at work; `train.iterate` changes it in place."""

    actor: Actor
    network: Network
    optimizer: Adam
    player: Player
    order: Generator
    rollout: Rollout
    iterations: int
    updates: int
    team: Team

    @property
    def config(self) -> ActorCriticConfig:
        return self.actor.config


def restored(
    config: ActorCriticConfig,
    world: World,
    seed: Seed,
    team: Team = ALONE,
    rollout: Rollout | None = None,
) -> Agent:
    """At work where it was; of the seed nothing is changed. Agents that work in turn may share the rollout's memory."""
    network = network_of(config, seed)
    optimizer = Adam(
        network.parameters(), lr=config.train.learning_rate, eps=config.train.adam_eps, fused=True
    )
    adam_state.load_state(optimizer, network, seed.optimizer)
    own = seed.ranks[team.rank]
    player = Player(
        own.colonies,
        own.components,
        own.ended,
        generator_from_state(own.environment),
        generator_from_state(own.policy),
    )
    return Agent(
        actor=make_actor(config, world, seed.scale, network),
        network=network,
        optimizer=optimizer,
        player=player,
        order=generator_from_state(own.order),
        rollout=empty_rollout(config, config.train.num_envs // team.size)
        if rollout is None
        else rollout,
        iterations=int(seed.iterations),
        updates=int(seed.updates),
        team=team,
    )


def network_of(config: ActorCriticConfig, seed: Seed) -> Network:
    """With the seed's weights."""
    with torch.random.fork_rng():  # the weights that it begins with are not random numbers of ours
        network = Network(config)
    network.load_state_dict(seed.params)
    return network


def actor_of(config: ActorCriticConfig, world: World, seed: Seed) -> Actor:
    """The seed's policy in any world of these rules; it learns no more."""
    return make_actor(config, world, seed.scale, network_of(config, seed))


def snapshot(agent: Agent, ranks: tuple[Rank, ...]) -> Seed:
    """As the agent is now, and every rank's part, in tensors that stay so."""
    return Seed(
        params={name: param.detach().clone() for name, param in agent.network.named_parameters()},
        scale=agent.actor.scale,
        optimizer=adam_state.get_state(agent.optimizer, agent.network),
        ranks=ranks,
        iterations=torch.tensor(agent.iterations),
        updates=torch.tensor(agent.updates),
    )


def rank_of(player: Player, order: Generator) -> Rank:
    """A process's part of a learner; colonies are never changed in place, so they need no copy."""
    colonies, components, ended, environment, policy = player
    return Rank(
        colonies, components, ended, environment.get_state(), policy.get_state(), order.get_state()
    )


def fresh(
    config: ActorCriticConfig,
    world: World,
    scale: Scale,
    network: Network,
    draws: list[list[Generator]],
) -> Seed:
    """Before the first iteration. draws: of each rank the generators of environment, policy and order."""
    params = {name: param.detach() for name, param in network.named_parameters()}
    colonies = config.train.num_envs // config.train.world_size
    ranks = []
    for environment, policy, order in draws:
        actor = make_actor(config, world, scale, network)
        ranks.append(rank_of(first_player(actor, colonies, environment, policy), order))
    return Seed(
        params, scale, adam_state.init_state(params), tuple(ranks), torch.tensor(0), torch.tensor(0)
    )
