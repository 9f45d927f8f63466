"""config -> the project's colonies and network, and equal plain ones; checks that they agree"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.reference import actor_critic as reference
from benchmarks.reference.colony import Colony, Plate
from benchmarks.torch_rows import check_same
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.envs.colony import features
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import TRAINING, sample_plates
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.colony.world import start, step
from quatrain.models.actor_critic.collect import compress_stiffness
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import TRUNK, Network, init
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor, observe
from quatrain.replay.rollouts.buffer import Graphs

SEED = 0
PLATES, SCALED = 16, 32
"""Colonies that give the scale of observations."""
HALF = 0.5
"""Share of the cells that each step removes: an even colony then keeps its size."""
FREE = ("gamma", "alpha", "noise", "theta")
PAST = 5
"""Steps of colonies before they are compared."""


class Sides(NamedTuple):
    """Holds the same policy for both implementations."""

    config: ActorCriticConfig
    world: World
    actor: Actor
    network: Network
    box: reference.Box


def sides_of(root: Path, **sections: Any) -> Sides:
    """Returns the policies of params.yaml with sections of actor_critic changed, before the first
    gradient step.
    """
    action = {"active_params": list(FREE), "fixed_params": {"delete_ratio": HALF}}
    changes = overlaid({"env": {"action": action}}, sections)
    raw = overlaid(read_raw(root, None), {"actor_critic": changes})
    config = validate(raw, lambda name: read_input(root, str(name))).actor_critic
    plates = sample_plates(TRAINING, PLATES, config.env.width, np.random.default_rng(SEED))
    world = make_world(config.env.rules, plates)
    network = init(config, SEED)
    actor = make_actor(config, world, scale_of(world), network)
    low, high = torch.tensor([getattr(config.env.action.bounds, name) for name in FREE]).T
    return Sides(config, world, actor, network, reference.Box(low, high, (HALF,)))


def plain_network(
    config: ActorCriticConfig, network: Network, images: bool = False
) -> reference.GraphNetwork:
    """Returns a plain network of the same weights; on demand with residual networks."""
    kind, sizes = config.env.features, config.network
    shape = reference.Shape(
        NODE_FEATURES[kind],
        GRAPH_FEATURES[kind],
        sizes.d,
        sizes.layers,
        sizes.heads,
        len(FREE),
        TRUNK,
    )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        plain = reference.GraphNetwork(shape, reference.Images(sizes.d) if images else None)
    plain.load_state_dict(network.state_dict(), strict=not images)
    return plain


def scale_of(world: World) -> Scale:
    """Computes means and deviations over some colonies."""
    observation = features.observe(world, colonies_of(world, SCALED), world.rules.max_nodes)
    node, graph, _, mask = compress_stiffness(world.rules, observation)
    cells = node[mask]
    deviations = [column.std(0).clamp(min=1e-3) for column in (cells, graph)]
    return Scale(cells.mean(0), deviations[0], graph.mean(0), deviations[1])


def colonies_of(world: World, count: int) -> Colonies:
    """Returns colonies after some steps in which they held their size."""
    generator = Generator().manual_seed(SEED)
    colonies = start(world, count, generator)
    low, high = torch.tensor(world.rules.bounds).T
    for _ in range(PAST):
        action = low + (high - low) * torch.rand(count, len(low), generator=generator)
        action[:, 0] = HALF
        colonies = step(world, colonies, action, generator).colonies
    return colonies


def sized(world: World, cells: int) -> World:
    """Returns a world whose colonies start with this number of cells, and keep an even one."""
    return world._replace(rules=world.rules._replace(n0_min=cells, n0_max=cells))


def steady(world: World, count: int) -> Tensor:
    """Returns actions that hold sizes, otherwise in the middle of their bounds."""
    action = torch.tensor(world.rules.bounds).mean(1)
    action[0] = HALF
    return action.expand(count, -1)


def plain_colony(world: World, colonies: Colonies, index: int) -> Colony:
    """Copies one colony into the plain loop."""
    pos, parent, _, age, new, n, t, left, *_ = (column[index].tolist() for column in colonies)
    plate = Plate("user", table=world.intensity[colonies.substrate[index]].tolist())
    colony = Colony(world.rules, plate)
    colony.start(pos[:n], parent[:n])
    for cell, cell_age, is_new in zip(colony.cells, age, new, strict=False):
        cell.age, cell.new = int(cell_age), is_new
    colony.t, colony.left = t, left
    return colony


def plain_graphs(graphs: Graphs) -> list[reference.Graph]:
    """Returns graphs without padding."""
    return [
        reference.Graph(node[mask], graph, parent[mask].tolist())
        for node, graph, parent, mask in zip(*graphs, strict=True)
    ]


@torch.no_grad()
def refuse_another_policy(sides: Sides, cells: int) -> None:
    """Compares the outputs for each colony, with residual networks and without."""
    world = sized(sides.world, cells)
    colonies = colonies_of(world, 4)
    raw, value = sides.actor.forward(observe(sides.actor._replace(world=world), colonies))[:2]
    networks = [plain_network(sides.config, sides.network, images) for images in (False, True)]
    for index in range(4):
        graph = reference.graph_of(plain_colony(world, colonies, index), sides.actor.scale)
        for plain in networks:
            what = f"policy: colony {index} of {cells} cells"
            check_same(what, (raw[index], value[index]), plain(graph), atol=1e-3)


def refuse_another_step(world: World) -> None:
    """Compares cells, rewards and ends of a step."""
    colonies, action = colonies_of(world, 4), steady(world, 4)
    ours = step(world, colonies, action, Generator().manual_seed(SEED))
    for index in range(4):
        plain = plain_colony(world, colonies, index).step(action[index].tolist())
        pos = ours.final.pos[index, : int(ours.final.n[index])].T.tolist()
        expected = [[plain.after.x, plain.after.y], reference.reward_of(plain), plain.reason]
        result = [pos, ours.reward[index], ours.reason[index]]
        check_same(f"environment: colony {index}", result, expected, atol=1e-3)
