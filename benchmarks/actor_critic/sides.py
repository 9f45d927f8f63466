"""config -> the project's colonies and network, and equal plain ones; checks that they agree."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.reference import actor_critic as reference
from benchmarks.reference.colony import Colony, Plate
from benchmarks.table import NotTheSame
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import TRAINING, sample_plates
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, Rules
from quatrain.envs.colony.world import start, step
from quatrain.models.actor_critic import network
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor, observe
from quatrain.replay.rollouts.buffer import Graphs

SEED = 0
PLATES = 16
HALF = 0.5
"""Share of the cells that is removed in each step: an even colony then keeps its size."""
FIXED_VALUES: dict[str, Any] = {
    "active_params": ["gamma", "alpha", "noise", "theta"],
    "fixed_params": {"delete_ratio": HALF},
}
CLIP = 10.0
SCALED = 32
"""Colonies that what is seen is scaled by."""
PAST = 5
"""Steps that colonies have taken before they are compared."""


class Sides(NamedTuple):
    """Holds the same policy for both implementations."""

    config: ActorCriticConfig
    world: World
    actor: Actor
    network: network.Network
    plain: reference.GraphNetwork
    box: reference.Box


def config_of(root: Path, preset: str | None = None, **sections: Any) -> ActorCriticConfig:
    """Returns a preset (None: params.yaml) with sections of actor_critic changed; a constant action
    holds the sizes of colonies.
    """
    constants = overlaid(
        {"actor_critic": {"env": {"action": FIXED_VALUES}}}, {"actor_critic": sections}
    )
    raw = overlaid(read_raw(root, preset), constants)
    return validate(raw, lambda name: read_input(root, str(name))).actor_critic


def sides_of(config: ActorCriticConfig) -> Sides:
    """Returns both policies before the first gradient step; observations are scaled over colonies
    of all sizes.
    """
    world = make_world(
        config.env.rules,
        sample_plates(TRAINING, PLATES, config.env.width, np.random.default_rng(SEED)),
    )
    fresh = network.init(config, SEED)
    plain = plain_network(config)
    plain.load_state_dict(fresh.state_dict())
    active = [getattr(config.env.action.bounds, name) for name in config.env.action.active_params]
    low, high = torch.tensor(active).T
    box = reference.Box(low, high, (HALF,))
    return Sides(
        config, world, make_actor(config, world, scale_of(world), fresh), fresh, plain, box
    )


def plain_network(config: ActorCriticConfig, images: bool = False) -> reference.GraphNetwork:
    """Returns a network with fresh weights; with the original's residual networks on demand."""
    selected, features = config.network, config.env.features
    if (selected.policy, selected.value_heads) != ("beta", "total"):
        raise ValueError("the plain network has the policy beta and one value")
    shape = reference.Shape(
        node_features=NODE_FEATURES[features],
        graph_features=GRAPH_FEATURES[features],
        d=selected.d,
        layers=selected.layers,
        heads=selected.heads,
        numbers=len(config.env.action.active_params),
        trunk=network.TRUNK,
    )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return reference.GraphNetwork(shape, reference.Images(selected.d) if images else None)


def with_images(sides: Sides) -> reference.GraphNetwork:
    """Returns the plain network with the same weights, and the original's residual networks."""
    costly = plain_network(sides.config, images=True)
    costly.load_state_dict(sides.network.state_dict(), strict=False)
    return costly


def scale_of(world: World) -> Scale:
    """Means and deviations over colonies after some steps."""
    colonies = colonies_of(world, SCALED)
    observed = [reference.features_of(plain_colony(world, colonies, row)) for row in range(SCALED)]
    columns = []
    for rows in (
        torch.cat([graph.node for graph in observed]),
        torch.stack([graph.graph for graph in observed]),
    ):
        columns += [rows.mean(0), rows.std(0).clamp(min=1e-3)]
    return Scale(*columns)


def colonies_of(world: World, count: int) -> Colonies:
    """Colonies after some steps in which they held their size; never three cells in a line."""
    generator = Generator().manual_seed(SEED)
    colonies, (low, high) = start(world, count, generator), torch.tensor(world.rules.bounds).T
    for _ in range(PAST):
        action = low + (high - low) * torch.rand(count, len(low), generator=generator)
        action[:, 0] = HALF
        colonies = step(world, colonies, action, generator).colonies
    return colonies


def sized(world: World, cells: int) -> World:
    """Returns a config where every colony starts with this number of cells; an even number stays
    constant.
    """
    return world._replace(rules=world.rules._replace(n0_min=cells, n0_max=cells))


def steady(rules: Rules, count: int) -> Tensor:
    """Actions that hold sizes, in the middle of their bounds otherwise."""
    action = torch.tensor(rules.bounds).mean(1)
    action[0] = HALF
    return action.expand(count, -1)


def plain_colony(world: World, colonies: Colonies, row: int) -> Colony:
    """Copies one colony into the plain loop."""
    plate = Plate("user", table=world.intensity[colonies.substrate[row]].tolist())
    colony, n = Colony(world.rules, plate), int(colonies.n[row])
    colony.start(colonies.pos[row, :n].tolist(), colonies.parent[row, :n].tolist())
    for cell, age, new in zip(
        colony.cells, colonies.age[row].tolist(), colonies.new[row].tolist(), strict=False
    ):
        cell.age, cell.new = int(age), new
    colony.t, colony.left = int(colonies.t[row]), int(colonies.left[row])
    return colony


def plain_scale(actor: Actor) -> reference.Scale:
    """Returns the project's scale for one graph."""
    scale = actor.scale

    def scaled(node: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
        node = ((node - scale.node_mean) / scale.node_std).clamp(-CLIP, CLIP)
        return node, ((graph - scale.graph_mean) / scale.graph_std).clamp(-CLIP, CLIP)

    return scaled


def plain_graphs(graphs: Graphs) -> list[reference.Graph]:
    """Returns graphs without padding."""
    sizes = graphs.mask.sum(1).tolist()
    return [
        reference.Graph(
            graphs.node[row, :n].clone(), graphs.graph[row], graphs.parent[row, :n].tolist()
        )
        for row, n in enumerate(sizes)
    ]


@torch.no_grad()
def refuse_another_policy(sides: Sides, cells: int) -> None:
    """Checks that observations, parameters of the policy and values are equal for each colony, with
    images and without.

    Raises:
        NotTheSame: they are not.
    """
    world = sized(sides.world, cells)
    colonies = colonies_of(world, 4)
    result = sides.actor.forward(observe(sides.actor._replace(world=world), colonies))
    costly, scale = with_images(sides), plain_scale(sides.actor)
    for row in range(4):
        graph = reference.graph_of(plain_colony(world, colonies, row), scale)
        for plain in (sides.plain, costly):
            raw, value = plain(graph)
            if not (close(raw, result.raw[row]) and close(value, result.value[row])):
                raise NotTheSame(
                    f"policy: colony {row} of {cells} cells: another distribution or value"
                )


def refuse_another_step(world: World) -> None:
    """Cells, rewards and ends must be the same.

    Raises:
        NotTheSame: they are not.
    """
    colonies, generator = colonies_of(world, 4), Generator().manual_seed(SEED)
    action = steady(world.rules, 4)
    stepped = step(world, colonies, action, generator)
    for row in range(4):
        colony = plain_colony(world, colonies, row)
        transition = colony.step(action[row].tolist())
        pos = torch.tensor([transition.after.x, transition.after.y]).T
        same = close(pos, stepped.final.pos[row, : len(pos)]) and transition.reason == int(
            stepped.reason[row]
        )
        if not same or not close(
            torch.tensor(reference.rewarded(transition)["total"]), stepped.reward[row]
        ):
            raise NotTheSame(
                f"environment: colony {row}: other cells, another reward or another end"
            )


def close(item: Tensor, other: Tensor) -> bool:
    return torch.allclose(item, other, rtol=1e-3, atol=1e-3)
