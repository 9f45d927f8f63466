"""config -> the project's colonies and actor, and equal plain ones; checks that they agree"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.harness import read_config
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.colony import Colony, Plate
from benchmarks.torch_rows import check_same
from quatrain.envs.colony import features
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import TRAINING, sample_plates
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.colony.world import start, step
from quatrain.models.actor_critic.network import TRUNK, init
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor, observe
from quatrain.validation import overlaid

SEED = 0
PLATES, SCALED = 16, 32
"""Plates, and colonies that give the scale of observations."""
HALF = 0.5
"""Share of the cells that each step removes: an even colony then keeps its size."""
ATTENTION = {"encoder": "attention", "d": 32, "layers": 1, "heads": 4}
FREE = ("gamma", "alpha", "noise", "theta")
PAST = 5
"""Steps of colonies before they are compared."""


def actor_of(root: Path, **sections: Any) -> Actor:
    """Returns the actor of params.yaml with attention over cells, as the original has it, and with
    sections of actor_critic changed, before the first gradient step.
    """
    action = {"active_params": list(FREE), "fixed_params": {"delete_ratio": HALF}}
    changes = {"env": {"action": action}, "network": ATTENTION}
    sections = overlaid(changes, sections)
    config = read_config(root, None, "actor_critic", sections)
    plates = sample_plates(TRAINING, PLATES, config.env.width, np.random.default_rng(SEED))
    world = make_world(config.env.rules, plates)
    return make_actor(config, world, scale_of(world), init(config, SEED))


def scale_of(world: World) -> Scale:
    """Computes means and deviations over some colonies."""
    observation = features.observe(world, colonies_of(world, SCALED), world.rules.max_nodes)
    node, graph, _, mask = features.compress_stiffness(world.rules, observation)
    cells = node[mask]
    deviations = [column.std(0).clamp(min=1e-3) for column in (cells, graph)]
    return Scale(cells.mean(0), deviations[0], graph.mean(0), deviations[1])


def plain_player(actor: Actor, passes: int = 0) -> reference.Player:
    """Returns a plain network of the same weights, which acts.

    passes: through residual networks per step, or 0.
    """
    kind, sizes = actor.config.env.features, actor.config.network
    counts = (NODE_FEATURES[kind], GRAPH_FEATURES[kind], sizes.d, sizes.layers, sizes.heads)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        images = reference.Images(sizes.d) if passes else None
        network = reference.GraphNetwork(reference.Shape(*counts, len(FREE), TRUNK), images)
    weights = dict(actor.eager.named_parameters())
    network.load_state_dict(weights, strict=not passes)
    bounds = actor.config.env.action.bounds
    low, high = torch.tensor([getattr(bounds, name) for name in FREE]).T
    box = reference.Box(low, high, (HALF,))
    return reference.Player(network, actor.scale, box, max(1, passes))


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


def sized(actor: Actor, cells: int) -> Actor:
    """Returns an actor whose colonies start with this number of cells, and keep an even one."""
    rules = actor.world.rules._replace(n0_min=cells, n0_max=cells)
    return actor._replace(world=actor.world._replace(rules=rules))


def steady(world: World, count: int) -> Tensor:
    """Returns actions that hold sizes, otherwise in the middle of their bounds."""
    action = torch.tensor(world.rules.bounds).mean(1)
    action[0] = HALF
    return action.expand(count, -1)


def plain_colony(world: World, colonies: Colonies, index: int) -> Colony:
    """Copies one colony into the plain loop."""
    pos, parent, _, age, new, n, t, left, *_ = (column[index].tolist() for column in colonies)
    plate = Plate(world.intensity[colonies.substrate[index]].tolist())
    colony = Colony(world.rules, plate)
    colony.start(pos[:n], parent[:n])
    for cell, cell_age, is_new in zip(colony.cells, age, new, strict=False):
        cell.age, cell.new = int(cell_age), is_new
    colony.t, colony.left = t, left
    return colony


@torch.no_grad()
def refuse_another_policy(actor: Actor) -> None:
    """Compares the outputs for each colony, with residual networks and without."""
    colonies = colonies_of(actor.world, 4)
    raw, value = actor.forward(observe(actor, colonies))[:2]
    networks = [plain_player(actor, passes).network for passes in (0, 1)]
    for index in range(4):
        graph = reference.graph_of(plain_colony(actor.world, colonies, index), actor.scale)
        for network in networks:
            expected = network(graph)
            check_same(f"policy: colony {index}", (raw[index], value[index]), expected, atol=1e-3)


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
