"""saved state of one seed <-> the network, optimiser and random generators that train it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.frameworks.torch.rng import generator_from_state
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor
from quatrain.models.actor_critic.ppo.learner import Learner, make_optimizer
from quatrain.models.actor_critic.ppo.rollout import (
    RolloutState,
    allocate_rollout,
    init_rollout_state,
)
from quatrain.models.actor_critic.ppo.state import SeedState, first_state
from quatrain.replay.rollouts.buffer import Rollout


class ColonyState(NamedTuple):
    """Holds what changes beside the network: colonies, running episodes, states of generators."""

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    episode_means: Float[Tensor, " statistic"]
    environment: UInt8[Tensor, " state"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


@dataclass
class Trainer(Learner):
    """Holds one seed's learner in training; `iteration.run_iteration` changes it in place."""

    actor: Actor
    rollout_state: RolloutState

    @property
    def config(self) -> ActorCriticConfig:
        return self.actor.config


def from_state(
    config: ActorCriticConfig,
    world: World,
    seed: SeedState,
    rollout: Rollout | None = None,
) -> Trainer:
    """Returns a trainer that continues from the state, which stays unchanged.

    Trainers that run in turn may share the memory of `rollout`; without one it is allocated.
    """
    network = load_network(config, seed.params)
    actor = make_actor(config, world, seed.scale, network)
    envs: ColonyState = seed.envs
    if rollout is None:
        rollout = allocate_rollout(config, config.train.num_envs)
    return Trainer(
        train=config.train,
        policy=actor.policy,
        forward=actor.forward,
        network=network,
        weights=world.weights,
        optimizer=make_optimizer(config.train, network, seed.optimizer),
        order=generator_from_state(envs.order),
        rollout=rollout,
        iterations=int(seed.iterations),
        updates=int(seed.updates),
        best=seed.best,
        compiled=config.train.compile,
        actor=actor,
        rollout_state=RolloutState(
            colonies=envs.colonies,
            components=envs.components,
            episode_means=envs.episode_means,
            environment=generator_from_state(envs.environment),
            policy=generator_from_state(envs.policy),
        ),
    )


def load_network(config: ActorCriticConfig, params: dict[str, Tensor]) -> Network:
    return networks.loaded(lambda: networks.make(config), params)


def load_actor(config: ActorCriticConfig, world: World, seed: SeedState) -> Actor:
    """Returns the policy with the best weights."""
    return make_actor(config, world, seed.scale, load_network(config, seed.best.params))


def to_colony_state(running: RolloutState, order: Generator) -> ColonyState:
    """Returns a part of the state; colonies are never changed in place, so they are not copied."""
    return ColonyState(
        colonies=running.colonies,
        components=running.components,
        episode_means=running.episode_means,
        environment=running.environment.get_state(),
        policy=running.policy.get_state(),
        order=order.get_state(),
    )


def init_seed_state(
    config: ActorCriticConfig,
    world: World,
    scale: Scale,
    network: Network,
    generators: Sequence[Generator],
) -> SeedState:
    """Returns a state before the first iteration.

    Args:
        generators: of environment, policy and the order of minibatches.
    """
    actor = make_actor(config, world, scale, network)
    environment, policy, order = generators
    running = init_rollout_state(actor, config.train.num_envs, environment, policy)
    return first_state(network, 0.0, scale, to_colony_state(running, order))
