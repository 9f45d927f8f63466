"""colonies -> what the network sees of them: scaled, and as wide as the largest needs."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.models.actor_critic.collect import Dataset, compressed
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network, Output
from quatrain.models.actor_critic.ppo.policy import Policy, make_policy
from quatrain.replay.rollouts.buffer import Graphs

CLIP = 10.0
"""Deviations beyond which an observation is cut."""
WIDTHS = (16, 32, 48, 64, 80, 104, 128)
"""Of what a compiled program sees, and then in steps of 64: each width is a program of its own."""
PROGRAMS = 256
"""That may be compiled: of each width one to act and two to learn, from a whole and from the last minibatch."""


class Scale(NamedTuple):
    """What observations are shifted and divided by."""

    node_mean: Float[Tensor, " node"]
    node_std: Float[Tensor, " node"]
    graph_mean: Float[Tensor, " graph"]
    graph_std: Float[Tensor, " graph"]


class Actor(NamedTuple):
    """A network with all that turns colonies into its input and its output into actions.

    forward: for batches that are always of the same few shapes, each of which may be compiled. plain: for any other.
    """

    config: ActorCriticConfig
    world: World
    scale: Scale
    policy: Policy
    forward: Callable[..., Output]
    plain: Callable[..., Output]


def make_actor(config: ActorCriticConfig, world: World, scale: Scale, network: Network) -> Actor:
    """With the network compiled, and on a GPU in half precision, where the config says so."""
    plain = network if config.train.amp == "none" or not on_gpu() else _in_half_precision(network)
    forward = plain
    if config.train.compile:
        torch._dynamo.config.recompile_limit = PROGRAMS
        forward = torch.compile(plain, dynamic=False)
    return Actor(config, world, scale, policy_of(config), forward, plain)


def on_gpu() -> bool:
    """Whether torch's default device is one."""
    return torch.get_default_device().type != "cpu"


def _in_half_precision(network: Network) -> Callable[..., Output]:
    def half(*groups: Graphs) -> Output:
        with torch.autocast(groups[0].node.device.type, torch.bfloat16):
            return network(*groups)

    return half


def policy_of(config: ActorCriticConfig) -> Policy:
    """The distribution over what is free of an action."""
    action = config.env.action
    return make_policy(
        config.network.policy, config.env.rules.bounds, action.active_params, action.fixed_params
    )


def scale_of(config: ActorCriticConfig, dataset: Dataset) -> Scale:
    """As measured, or none."""
    scale = Scale(*(torch.tensor(values) for values in dataset.train.norm))
    if config.env.obs_norm == "dataset":
        return scale
    zero_or_one = (0.0, 1.0, 0.0, 1.0)
    return Scale(
        *(torch.full_like(values, value) for values, value in zip(scale, zero_or_one, strict=True))
    )


def see(actor: Actor, colonies: Colonies) -> Graphs:
    """What the network is shown of these colonies; where no cell is, zeros."""
    rules = actor.world.rules
    node, graph, parent, mask = compressed(
        rules, observe(actor.world, colonies, width(actor, colonies))
    )
    scale = actor.scale
    node = ((node - scale.node_mean) / scale.node_std).clamp_(-CLIP, CLIP) * mask[..., None]
    graph = ((graph - scale.graph_mean) / scale.graph_std).clamp_(-CLIP, CLIP)
    return Graphs(node, graph, parent, mask)


def width(actor: Actor, colonies: Colonies) -> int:
    """Slots to look at: on a CPU those in use; elsewhere all, for to ask would wait for the device."""
    slots = actor.world.rules.max_nodes
    if not colonies.n.is_cpu:
        return slots
    return bucket(actor, min(int(colonies.n.max()), slots))


def bucket(actor: Actor, cells: int) -> int:
    """Of compiled programs the next width."""
    if not actor.config.train.compile:
        return max(cells, 1)
    wide = next((one for one in WIDTHS if one >= cells), 64 * math.ceil(cells / 64))
    return min(wide, actor.world.rules.max_nodes)


def mean_policy(actor: Actor) -> ColonyPolicy:
    """The policy without its spread."""

    def act(_: Tensor, colonies: Colonies) -> Tensor:
        return actor.policy.action(
            actor.policy.centre(actor.policy.distribution(actor.plain(see(actor, colonies)).raw))
        )

    return torch.no_grad()(act)


def drawn_policy(actor: Actor, generator: torch.Generator) -> ColonyPolicy:
    """The policy as it acts while it learns."""

    def act(_: Tensor, colonies: Colonies) -> Tensor:
        chosen = actor.policy.distribution(actor.plain(see(actor, colonies)).raw)
        return actor.policy.action(actor.policy.sample(chosen, generator))

    return torch.no_grad()(act)
