"""saved state of one seed <-> the learner and the environments that train it"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64, Shaped, UInt8
from torch import Generator, Tensor

from quatrain.envs.host.envs import EnvStates, HostEnvs, empty_states
from quatrain.envs.host.spaces import Interface
from quatrain.frameworks.torch.rng import generator_from_state
from quatrain.models.actor_critic.hosted.acting import (
    Actor,
    load_network,
    make_policy,
    rollout_sizes,
)
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.network import ArrayNetwork
from quatrain.models.actor_critic.ppo.learner import Learner, make_optimizer
from quatrain.models.actor_critic.ppo.state import SeedState
from quatrain.replay.rollouts import buffer


class HostState(NamedTuple):
    """Holds what changes beside the network: running episodes (`envs.EnvStates`), generators.

    seed: of the environments. running: return and length of running episodes so far.
    episode_means: of those that ended in the last rollout in which any ended.
    """

    seed: Int64[Tensor, ""]
    episode: Int64[Tensor, " env"]
    elapsed: Int64[Tensor, " env"]
    actions: Shaped[Tensor, "env step agent *action"]
    obs: Float32[Tensor, "env agent obs"]
    running: Float32[Tensor, "env 2"]
    episode_means: Float32[Tensor, "2"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


@dataclass
class HostTrainer(Learner):
    """Holds one seed's learner and its environments, which it changes in place."""

    config: HostedActorCriticConfig
    array_network: ArrayNetwork
    envs: HostEnvs
    running: Float32[np.ndarray, "env 2"]
    episode_means: Float32[np.ndarray, "2"]
    draws: Generator

    @property
    def actor(self) -> Actor:
        return Actor(self.policy, self.network)


def from_state(config: HostedActorCriticConfig, seed: SeedState) -> HostTrainer:
    """Returns a trainer that continues from the state, which stays unchanged; its environments are
    to be closed.

    Raises:
        DataError: the environment cannot be made, or does not repeat its running episodes.
    """
    host: HostState = seed.envs
    envs = HostEnvs(config.env, config.train.num_envs, int(host.seed))
    episodes = (getattr(host, name) for name in EnvStates._fields)
    envs.restore(EnvStates(*map(np.asarray, episodes)))
    space = envs.interface
    network = load_network(config, space, seed.params)
    return HostTrainer(
        train=config.train,
        policy=make_policy(config, space),
        forward=network,
        network=network,
        weights=torch.ones(1),
        optimizer=make_optimizer(config.train, network, seed.optimizer),
        order=generator_from_state(host.order),
        rollout=buffer.allocate(rollout_sizes(config, space)),
        best=seed.best,
        iterations=int(seed.iterations),
        updates=int(seed.updates),
        compiled=False,
        config=config,
        array_network=network,
        envs=envs,
        running=host.running.numpy().copy(),
        episode_means=host.episode_means.numpy().copy(),
        draws=generator_from_state(host.policy),
    )


def first_host_state(
    config: HostedActorCriticConfig, space: Interface, seed: int, generators: tuple[Generator, ...]
) -> HostState:
    """Returns the state before the first step of environments, which are not made.

    generators: of actions, and of the order of minibatches.
    """
    count = config.train.num_envs
    policy, order = (generator.get_state() for generator in generators)
    return HostState(
        **_episodes(seed, empty_states(space, count)),
        running=torch.zeros(count, 2, device="cpu"),
        episode_means=torch.zeros(2, device="cpu"),
        policy=policy,
        order=order,
    )


def to_host_state(trainer: HostTrainer) -> HostState:
    return HostState(
        **_episodes(trainer.envs.seed, trainer.envs.states),
        running=_on_host(trainer.running),
        episode_means=_on_host(trainer.episode_means),
        policy=trainer.draws.get_state(),
        order=trainer.order.get_state(),
    )


def _episodes(seed: int, states: EnvStates) -> dict[str, Tensor]:
    columns = {"seed": seed, **states._asdict()}
    return {name: _on_host(column) for name, column in columns.items()}


def _on_host(values: object) -> Tensor:
    return torch.tensor(values, device="cpu")


def load_actor(
    config: HostedActorCriticConfig, space: Interface, params: dict[str, Tensor]
) -> Actor:
    """Returns the policy with these weights."""
    return Actor(make_policy(config, space), load_network(config, space, params))
