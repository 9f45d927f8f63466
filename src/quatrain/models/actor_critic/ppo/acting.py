"""colonies -> the network's input: scaled observations, as wide as the largest colony needs."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony import features
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.models.actor_critic.collect import Dataset, compress_stiffness
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network, Output
from quatrain.models.actor_critic.ppo.policy import Policy, make_policy
from quatrain.replay.rollouts.buffer import Graphs

CLIP = 10.0
"""Standard deviations at which observations are clipped."""
WIDTHS = (16, 32, 48, 64, 80, 104, 128)
"""Numbers of cells that compiled programs take; above them multiples of 64. Each width is compiled
separately.
"""
PROGRAMS = 256
"""Limit of compiled programs: for each width one to act and two to learn, for full and for last
minibatches.
"""


class Scale(NamedTuple):
    """Holds mean and standard deviation of observations."""

    node_mean: Float[Tensor, " node"]
    node_std: Float[Tensor, " node"]
    graph_mean: Float[Tensor, " graph"]
    graph_std: Float[Tensor, " graph"]


class Actor(NamedTuple):
    """Holds a network with all that turns colonies into its input and its output into actions.

    forward: the network, perhaps compiled, for batches of the same few shapes. eager: the same for
    any shape.
    """

    config: ActorCriticConfig
    world: World
    scale: Scale
    policy: Policy
    forward: Callable[..., Output]
    eager: Callable[..., Output]


def make_actor(config: ActorCriticConfig, world: World, scale: Scale, network: Network) -> Actor:
    """Builds an actor; the config decides on compilation and, on a GPU, on half precision."""
    half = config.train.amp != "none" and on_gpu()
    eager = _in_half_precision(network) if half else network
    forward = eager
    if config.train.compile:
        torch._dynamo.config.recompile_limit = PROGRAMS
        forward = torch.compile(eager, dynamic=False)
    action = config.env.action
    policy = make_policy(
        config.network.policy,
        config.env.rules.bounds,
        action.active_params,
        action.fixed_params,
    )
    return Actor(config, world, scale, policy, forward, eager)


def on_gpu() -> bool:
    """Returns whether torch's default device is a GPU."""
    return torch.get_default_device().type != "cpu"


def _in_half_precision(network: Network) -> Callable[..., Output]:
    def forward(*groups: Graphs) -> Output:
        with torch.autocast(groups[0].node.device.type, torch.bfloat16):
            return network(*groups)

    return forward


def make_scale(config: ActorCriticConfig, dataset: Dataset) -> Scale:
    """Returns the dataset's scale, or 0 and 1 where `env.obs_norm` is none."""
    scale = Scale(*(torch.tensor(values) for values in dataset.train.norm))
    if config.env.obs_norm == "dataset":
        return scale
    return Scale(
        node_mean=torch.zeros_like(scale.node_mean),
        node_std=torch.ones_like(scale.node_std),
        graph_mean=torch.zeros_like(scale.graph_mean),
        graph_std=torch.ones_like(scale.graph_std),
    )


def observe(actor: Actor, colonies: Colonies) -> Graphs:
    """Returns the network's input; slots without a cell hold zeros."""
    width = observed_width(actor, colonies)
    observation = features.observe(actor.world, colonies, width)
    node, graph, parent, mask = compress_stiffness(actor.world.rules, observation)
    scale = actor.scale
    node = ((node - scale.node_mean) / scale.node_std).clamp_(-CLIP, CLIP) * mask[..., None]
    graph = ((graph - scale.graph_mean) / scale.graph_std).clamp_(-CLIP, CLIP)
    return Graphs(node, graph, parent, mask)


def observed_width(actor: Actor, colonies: Colonies) -> int:
    """Returns how many slots to observe: on a CPU those in use, on a GPU all, which avoids a
    synchronisation.
    """
    slots = actor.world.rules.max_nodes
    if not colonies.n.is_cpu:
        return slots
    return round_up_width(actor, min(int(colonies.n.max()), slots))


def round_up_width(actor: Actor, cells: int) -> int:
    """Returns the next width of compiled programs; without compilation the number of cells, at
    least 1.
    """
    if not actor.config.train.compile:
        return max(cells, 1)
    multiple = 64 * math.ceil(cells / 64)
    width = next((width for width in WIDTHS if width >= cells), multiple)
    return min(width, actor.world.rules.max_nodes)


def deterministic_policy(actor: Actor) -> ColonyPolicy:
    """Returns the policy that acts by the mean of its distribution."""

    def act(_: Tensor, colonies: Colonies) -> Tensor:
        raw = actor.eager(observe(actor, colonies)).raw
        params = actor.policy.distribution(raw)
        return actor.policy.action(actor.policy.mean(params))

    return torch.no_grad()(act)


def stochastic_policy(actor: Actor, generator: torch.Generator) -> ColonyPolicy:
    """Returns the policy that samples its actions, as in training."""

    def act(_: Tensor, colonies: Colonies) -> Tensor:
        raw = actor.eager(observe(actor, colonies)).raw
        params = actor.policy.distribution(raw)
        return actor.policy.action(actor.policy.sample(params, generator))

    return torch.no_grad()(act)
