"""state -> arrays for inference; colonies -> the policy's actions and the value of the colonies."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.plates import FLOOR
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS
from quatrain.envs.colony.world import colonies_at
from quatrain.frameworks.torch import packing
from quatrain.models.actor_critic import network
from quatrain.models.actor_critic.collect import Dataset, InitialColonies, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor, observe
from quatrain.models.actor_critic.train import State
from quatrain.requests import Input, validate_request

EXAMPLES = 3


class Weights(NamedTuple):
    params: dict[str, Tensor]
    scale: Scale


def export(config: ActorCriticConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the best network of the first seed and the scale of its observations."""
    return packing.to_arrays(Weights(state.best[0].params, state.scale[0]))


def request(config: ActorCriticConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the first held-out colonies, before their first step."""
    held_out = dataset.held_out
    initial = InitialColonies(*(column[:EXAMPLES] for column in held_out.colonies))
    colonies = make_colonies(config.env, initial)
    question = {
        "cells": initial.n,
        "positions": colonies.pos.numpy(force=True),
        "parents": colonies.parent.numpy(force=True),
        "ages": colonies.age.numpy(force=True),
        "left_moves": colonies.left.numpy(force=True),
        "stiffness": held_out.plates.intensity[initial.substrate],
    }
    return {name: question[name].astype(spec.dtype) for name, spec in inputs(config).items()}


def answer(
    config: ActorCriticConfig,
    arrays: dict[str, np.ndarray],
    request: Any,
) -> dict[str, np.ndarray]:
    """Returns the actions of the deterministic policy, as it is evaluated, and the value of each
    colony.

    Inputs: `positions` (n, max_nodes, 2), x and y of each cell in pixels; `cells` (n,), the number
    of cells: entries beyond it are ignored; `parents` (n, max_nodes), the slot of each cell's
    parent, which precedes the cell, or -1; `ages` (n, max_nodes), steps since each cell's birth;
    `left_moves` (n,), steps in a row that moved the centroid to the left; `stiffness` (n, width) of
    the plate at each pixel along x. A colony before its first step is a chain: parents -1, 0, 1,
    ..., ages 0, left_moves 0. Outputs (n,): the action, which is `delete_ratio`, the share of cells
    to remove from the left; `gamma`, pixels that children are thrown where the plate is stiff;
    `alpha`, the stiffness where it is half as far; `noise`, pixels added to that; `theta`, its
    direction in radians; and `value`, the expected discounted return.

    Raises:
        ValueError: inputs, shapes or numbers differ from these; the arrays belong to another
            config.
    """
    question = validate_request("actor_critic", request, inputs(config))
    with torch.no_grad():
        actor = _load_actor(config, arrays, question["stiffness"])
        policy = actor.policy
        output = actor.eager(observe(actor, _make_colonies(question)))
        action = policy.action(policy.mean(policy.distribution(output.raw)))
        total = output.value.ndim == 1
        value = output.value if total else output.value @ actor.world.weights
    outputs = dict(zip(PARAMETERS, action.unbind(1), strict=True)) | {"value": value}
    return {name: column.numpy(force=True) for name, column in outputs.items()}


def _load_actor(
    config: ActorCriticConfig,
    arrays: dict[str, np.ndarray],
    stiffness: np.ndarray,
) -> Actor:
    """Returns the policy on plates of these stiffnesses; not compiled, which pays only for repeated
    shapes.
    """
    train = config.train.model_copy(update={"compile": False})
    config = config.model_copy(update={"train": train})
    rules = config.env
    net = network.init(config, 0)
    node = torch.zeros(NODE_FEATURES[rules.features])
    graph = torch.zeros(GRAPH_FEATURES[rules.features])
    weights = packing.from_arrays(
        Weights(net.state_dict(), Scale(node, node, graph, graph)),
        arrays,
    )
    net.load_state_dict(weights.params)
    world = World(
        rules,
        torch.tensor(stiffness),
        torch.tensor([weight for _, weight in rules.reward_weights]),
    )
    return make_actor(config, world, weights.scale, net)


def _make_colonies(question: dict[str, np.ndarray]) -> Colonies:
    """Returns colonies, each on its own plate.

    Cells of age 0 were born in the last step, unless all cells have age 0: then the colony has not
    stepped yet.
    """
    cells = torch.tensor(question["cells"])
    parents = torch.tensor(question["parents"])
    ages = torch.tensor(question["ages"])
    used = torch.arange(parents.shape[1]) < cells[:, None]
    colonies = colonies_at(
        torch.tensor(question["positions"]), cells.long(), torch.arange(len(cells))
    )
    return colonies._replace(
        parent=parents.long(),
        age=ages.float(),
        new=used & (ages == 0) & (ages.amax(1, keepdim=True) > 0),
        left=torch.tensor(question["left_moves"]).long(),
    )


def inputs(config: ActorCriticConfig) -> dict[str, Input]:
    """Returns the inputs of a request; in slots without a cell a position is 0, a parent -1 and an
    age 0.
    """
    env = config.env
    slots = env.max_nodes
    return {
        "cells": Input(np.int32, (), 1, slots),
        "positions": Input(
            np.float32,
            (slots, 2),
            0,
            np.array([env.width, env.height]),
            "cells",
        ),
        "parents": Input(np.int32, (slots,), -1, np.arange(slots) - 1, "cells"),
        "ages": Input(np.int32, (slots,), 0, env.max_steps, "cells"),
        "left_moves": Input(np.int32, (), 0, env.left_limit - 1),
        "stiffness": Input(np.float32, (env.width,), FLOOR, float(np.finfo(np.float32).max)),
    }
