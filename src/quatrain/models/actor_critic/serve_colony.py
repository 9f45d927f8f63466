"""state -> constants for inference; colonies -> the policy's actions, and their values"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from quatrain.envs.colony.config import PARAMETERS
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.plates import FLOOR
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


def answering(
    config: ActorCriticConfig, actor: Actor, weights: dict[str, Any]
) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns what tells actions of the deterministic policy and the value of each colony, each on
    its own plate.
    """
    reward_weights = torch.tensor([weight for _, weight in config.env.reward_weights])
    view = view_in(config, World(config.env, torch.zeros(1, 1), reward_weights), weights["scale"])

    def answer(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        world = view.world._replace(intensity=torch.as_tensor(question["stiffness"]))
        output = actor.outputs(view._replace(world=world).observe(_make_colonies(question)))
        value = output.value if output.value.ndim == 1 else output.value @ reward_weights
        columns = view.whole_action(output.action).T.contiguous().numpy(force=True)
        return dict(zip(PARAMETERS, columns, strict=True)) | {"value": value.numpy(force=True)}

    return answer


def _make_colonies(question: dict[str, np.ndarray]) -> Colonies:
    """Returns colonies, each on its own plate; what is not observed is 0.

    They have as many slots as the largest has cells, but on a GPU all (`View.observe`).

    Cells of age 0 were born in the last step, unless all cells have age 0: then the colony has not
    stepped yet.
    """
    on_cpu = torch.get_default_device().type == "cpu"
    slots = question["cells"].max() if on_cpu else question["ages"].shape[1]
    ages = question["ages"][:, :slots]
    used = np.arange(slots) < question["cells"][:, None]
    cells = torch.as_tensor(question["cells"]).long()
    zero = torch.zeros_like(cells)
    return Colonies(
        pos=torch.as_tensor(question["positions"][:, :slots]),
        parent=torch.as_tensor(question["parents"][:, :slots]).long(),
        pid=zero,
        age=torch.as_tensor(ages).float(),
        new=torch.as_tensor(used & (ages == 0) & (ages.max(1, keepdims=True) > 0)),
        n=cells,
        t=zero,
        left=torch.as_tensor(question["left_moves"]).long(),
        next_pid=zero,
        centroid=zero,
        furthest=zero,
        substrate=torch.arange(len(cells)),
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
