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
from quatrain.models.actor_critic.collect import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network, Output
from quatrain.models.actor_critic.ppo.policy import Params, Policy, make_policy
from quatrain.replay.rollouts.buffer import Graphs

CLIP = 10.0  # standard deviations at which observations are clipped
# Numbers of cells that compiled programs take; above them multiples of 64. Each width is compiled
# separately.
WIDTHS = (16, 32, 48, 64, 80, 104, 128)
# Limit of compiled programs: for each width one to act and two to learn, for full and for last
# minibatches.
PROGRAMS = 256


class Scale(NamedTuple):
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
    return Actor(
        config=config,
        world=world,
        scale=scale,
        policy=make_policy(
            config.network.policy,
            config.env.bounds,
            config.env.action.active_params,
            config.env.action.fixed_params,
        ),
        forward=forward,
        eager=eager,
    )


def on_gpu() -> bool:
    return torch.get_default_device().type != "cpu"


def _in_half_precision(network: Network) -> Callable[..., Output]:
    def forward(*groups: Graphs) -> Output:
        with torch.autocast(groups[0].node.device.type, torch.bfloat16):
            return network(*groups)

    return forward


def make_scale(config: ActorCriticConfig, dataset: Dataset) -> Scale:
    """Returns the dataset's scale, or 0 and 1 where `env.obs_norm` is none."""
    node_mean, node_std, graph_mean, graph_std = map(torch.tensor, dataset.train.norm)
    if config.env.obs_norm == "dataset":
        return Scale(node_mean, node_std, graph_mean, graph_std)
    return Scale(
        node_mean=torch.zeros_like(node_mean),
        node_std=torch.ones_like(node_std),
        graph_mean=torch.zeros_like(graph_mean),
        graph_std=torch.ones_like(graph_std),
    )


def observe(actor: Actor, colonies: Colonies) -> Graphs:
    """Returns the network's input; slots without a cell hold zeros."""
    world = actor.world
    scale = actor.scale
    width = world.rules.max_nodes
    if colonies.n.is_cpu:  # on a GPU reading the sizes would be a synchronisation
        cells = min(int(colonies.n.max()), width)
        width = round_up_width(cells, width, actor.config.train.compile)
    node, graph, parent, mask = features.compress_stiffness(
        world.rules,
        features.observe(world, colonies, width, graph_only=not sees_cells(actor.config)),
    )
    node = ((node - scale.node_mean) / scale.node_std).clamp_(-CLIP, CLIP) * mask[..., None]
    graph = ((graph - scale.graph_mean) / scale.graph_std).clamp_(-CLIP, CLIP)
    return Graphs(node, graph, parent, mask)


def sees_cells(config: ActorCriticConfig) -> bool:
    return config.network.encoder == "attention"


def round_up_width(cells: int, most: int, compiled: bool) -> int:
    """Returns the next width of compiled programs; without compilation the number of cells, at
    least 1.
    """
    if not compiled:
        return max(cells, 1)
    width = next((width for width in WIDTHS if width >= cells), 64 * math.ceil(cells / 64))
    return min(width, most)


def deterministic_policy(actor: Actor) -> ColonyPolicy:

    return _act(actor, actor.policy.mean)


def stochastic_policy(actor: Actor, generator: torch.Generator) -> ColonyPolicy:

    return _act(actor, lambda params: actor.policy.sample(params, generator))


def _act(actor: Actor, raw_action: Callable[[Params], Tensor]) -> ColonyPolicy:
    @torch.no_grad()
    def act(_: Tensor, colonies: Colonies) -> Tensor:
        params = actor.policy.distribution(actor.eager(observe(actor, colonies)).raw)
        return actor.policy.action(raw_action(params))

    return act
