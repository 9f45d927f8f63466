"""observations of environments on the host -> actions of a policy"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from quatrain.envs.host.episodes import Act
from quatrain.envs.host.spaces import Interface
from quatrain.models.actor_critic.hosted import network as networks
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.network import ArrayNetwork
from quatrain.models.actor_critic.network import Network, loaded
from quatrain.models.actor_critic.ppo.categorical import make_categorical
from quatrain.models.actor_critic.ppo.policy import Policy, make_box_policy
from quatrain.replay.rollouts.buffer import Graphs, Sizes


class Actor(NamedTuple):
    policy: Policy
    network: Network


def make_policy(config: HostedActorCriticConfig, space: Interface) -> Policy:
    if space.action_count:
        return make_categorical()
    return make_box_policy(config.network.policy, *space.action_range)


def rollout_sizes(config: HostedActorCriticConfig, space: Interface) -> Sizes:
    numbers = len(space.action_low)
    return Sizes(
        horizon=config.train.horizon,
        envs=config.train.num_envs,
        cells=0,
        node_features=0,
        graph_features=space.observation_size,
        actions=numbers or 1,
        dist_params=(2, numbers) if numbers else (1, space.action_count),
        components=1,
        values=(),
    )


def load_network(
    config: HostedActorCriticConfig, space: Interface, params: dict[str, Tensor]
) -> ArrayNetwork:
    network = loaded(lambda: networks.make(config, space), params)
    assert isinstance(network, ArrayNetwork)
    return network


def to_graphs(obs: Float[np.ndarray, "env obs"]) -> Graphs:
    """Returns observations as graphs without cells."""
    envs = len(obs)
    return Graphs(
        node=torch.zeros(envs, 0, 0),
        graph=torch.tensor(obs),
        parent=torch.zeros(envs, 0, dtype=torch.int64),
        mask=torch.zeros(envs, 0, dtype=torch.bool),
    )


def to_actions(policy: Policy, raw_action: Tensor) -> Shaped[np.ndarray, "env agent *action"]:
    """Returns executed actions as environments take them, of the only agent."""
    return policy.action(raw_action).numpy(force=True)[:, None]


def deterministic_policy(actor: Actor) -> Act:

    @torch.no_grad()
    def act(obs: Float[np.ndarray, "env agent obs"]) -> Shaped[np.ndarray, "env agent *action"]:
        output = actor.network(to_graphs(obs[:, 0]))
        return to_actions(actor.policy, actor.policy.mean(actor.policy.distribution(output.raw)))

    return act
