"""state -> constants for inference; colonies -> the policy's actions, and their values"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from quatrain.envs.colony.config import PARAMETERS
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.plates import FLOOR
from quatrain.envs.colony.world import colonies_at
from quatrain.models.actor_critic.colony import Scale, spec_of, view_in
from quatrain.models.actor_critic.colony_data import Dataset, InitialColonies, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Actor
from quatrain.models.actor_critic.train import State
from quatrain.replay.rollouts import Spec
from quatrain.serving import Input

EXAMPLES = 3


def constants(state: State, dataset: Dataset) -> dict[str, Any]:
    """Returns the scale of what the first seed's network sees."""
    return {"scale": state.scale[0]}


def template(
    config: ActorCriticConfig, arrays: dict[str, np.ndarray]
) -> tuple[Spec, dict[str, Any]]:
    """Returns the sizes of a network, and constants of the shapes that they must have."""
    spec = spec_of(config)
    node, graph = torch.zeros(spec.node_features), torch.zeros(spec.graph_features)
    return spec, {"scale": Scale(node, node, graph, graph)}


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
    actor: Actor,
    weights: dict[str, Any],
    question: dict[str, np.ndarray],
) -> dict[str, Tensor]:
    """Returns the actions of the deterministic policy and the value of each colony, each on its own
    plate.
    """
    rules = config.env
    reward_weights = torch.tensor([weight for _, weight in rules.reward_weights])
    world = World(rules, torch.tensor(question["stiffness"]), reward_weights)
    view = view_in(config, world, weights["scale"])
    graphs = view.observe(_make_colonies(question))
    action = view.whole_action(actor.act(graphs))
    value = actor.value(graphs)
    if value.ndim > 1:
        value = value @ world.weights
    return dict(zip(PARAMETERS, action.unbind(1), strict=True)) | {"value": value}


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


def inputs(config: ActorCriticConfig, spec: Spec | None = None) -> dict[str, Input]:
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
