"""state -> arrays for inference; colonies -> the policy's actions and the value of the colonies."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.plates import FLOOR
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.envs.colony.world import colonies_at
from quatrain.frameworks.torch import packing
from quatrain.frameworks.torch.rng import seeded
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.learner import State, load_actor, make_network
from quatrain.models.actor_critic.worlds.colony import Scale, spec_of, view_in
from quatrain.models.actor_critic.worlds.colony_data import Dataset, InitialColonies, make_colonies
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
    config: ActorCriticConfig, arrays: dict[str, np.ndarray], request: Any
) -> dict[str, np.ndarray]:
    """Returns the actions of the deterministic policy and the value of each colony, each on its own
    plate; not compiled, which pays only for repeated shapes.
    """
    question = validate_request("actor_critic", request, inputs(config))
    train = config.train.model_copy(update={"compile": False})
    config = config.model_copy(update={"train": train})
    weights = _weights(config, arrays)
    rules = config.env
    world = World(
        rules,
        torch.tensor(question["stiffness"]),
        torch.tensor([weight for _, weight in rules.reward_weights]),
    )
    view = view_in(config, world, weights.scale)
    actor = load_actor(config, spec_of(config), weights.params)
    graphs = view.observe(_make_colonies(question))
    action = view.whole_action(actor.act(graphs))
    value = actor.value(graphs)
    if value.ndim > 1:
        value = value @ world.weights
    outputs = dict(zip(PARAMETERS, action.unbind(1), strict=True)) | {"value": value}
    return {name: column.numpy(force=True) for name, column in outputs.items()}


def _weights(config: ActorCriticConfig, arrays: dict[str, np.ndarray]) -> Weights:
    spec = spec_of(config)
    node, graph = torch.zeros(spec.node_features), torch.zeros(spec.graph_features)
    params = seeded(lambda: make_network(config, spec), 0).state_dict()
    return packing.from_arrays(Weights(params, Scale(node, node, graph, graph)), arrays)


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
        "positions": Input(np.float32, (slots, 2), 0, np.array([env.width, env.height]), "cells"),
        "parents": Input(np.int32, (slots,), -1, np.arange(slots) - 1, "cells"),
        "ages": Input(np.int32, (slots,), 0, env.max_steps, "cells"),
        "left_moves": Input(np.int32, (), 0, env.left_limit - 1),
        "stiffness": Input(np.float32, (env.width,), FLOOR, float(np.finfo(np.float32).max)),
    }
