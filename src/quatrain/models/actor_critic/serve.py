"""learner -> the arrays that answer without it; colonies -> what the policy does with them, and what they are worth."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.plates import FLOOR
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS
from quatrain.envs.colony.world import colonies_at
from quatrain.frameworks.torch import packing
from quatrain.models.actor_critic import network
from quatrain.models.actor_critic.collect import Dataset, colonies_of
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Actor, Scale, make_actor, see
from quatrain.models.actor_critic.train import State
from quatrain.requests import Input, validate_request

EXAMPLES = 3


class Weights(NamedTuple):
    """What of a learner acts."""

    params: dict[str, Tensor]
    scale: Scale


class Question(NamedTuple):
    """Colonies as they stand, by field of a request."""

    cells: Int32[np.ndarray, " question"]
    positions: Float32[np.ndarray, "question slot 2"]
    parents: Int32[np.ndarray, "question slot"]
    ages: Int32[np.ndarray, "question slot"]
    left_moves: Int32[np.ndarray, " question"]
    stiffness: Float32[np.ndarray, "question pixel"]


def export(config: ActorCriticConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Network of the first seed, and the scale of what it sees."""
    seed = state.seeds[0]
    return packing.to_arrays(Weights(seed.params, seed.scale))


def request(config: ActorCriticConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """The first held-out colonies, before their first step."""
    held_out = dataset.held_out
    starts = type(held_out.colonies)(*(column[:EXAMPLES] for column in held_out.colonies))
    colonies = colonies_of(config.env.rules, starts)
    found = Question(
        cells=starts.n,
        positions=colonies.pos.numpy(force=True),
        parents=colonies.parent.numpy(force=True),
        ages=colonies.age.numpy(force=True),
        left_moves=colonies.left.numpy(force=True),
        stiffness=held_out.plates.intensity[starts.substrate],
    )
    return {name: getattr(found, name).astype(own.dtype) for name, own in inputs(config).items()}


def answer(
    config: ActorCriticConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """How the policy steers colonies, without its spread, as when it is judged; and what it expects to earn.

    Inputs: `positions` (n, max_nodes, 2), x and y of each cell in pixels; `cells` (n,), how many there are: what stands
    beyond is not looked at; `parents` (n, max_nodes), the slot of each cell's parent, which comes before it, or -1;
    `ages` (n, max_nodes), steps since each cell's birth; `left_moves` (n,), steps in a row that moved the centroid to
    the left; `stiffness` (n, width) of the plate at each pixel along x. A colony that begins is a chain: parents
    -1, 0, 1, ..., ages 0, left_moves 0.
    Outputs (n,): the action, which is `delete_ratio`, the share of cells to remove from the left; `gamma`, pixels that
    children are thrown where it is stiff; `alpha`, the stiffness where it is half as far; `noise`, pixels added to
    that; `theta`, its direction in radians; and `value`, the discounted return from here on.

    Raises:
        ValueError: other inputs, shapes or numbers than these; arrays of another config.
    """
    question = Question(**validate_request("actor_critic", request, inputs(config)))
    with torch.no_grad():
        actor, colonies = _actor(config, arrays, question.stiffness), _colonies(question)
        output = actor.plain(see(actor, colonies))
        policy = actor.policy
        action = policy.action(policy.centre(policy.distribution(output.raw)))
        value = output.value if output.value.ndim == 1 else output.value @ actor.world.weights
    columns = zip((*PARAMETERS, "value"), (*action.unbind(1), value), strict=True)
    return {name: column.numpy(force=True) for name, column in columns}


def _actor(
    config: ActorCriticConfig, arrays: dict[str, np.ndarray], stiffness: np.ndarray
) -> Actor:
    """On plates of these stiffnesses. Nothing is compiled: that pays when the same shapes come again and again."""
    config = config.model_copy(update={"train": config.train.model_copy(update={"compile": False})})
    made = network.init(config, 0)
    sizes = (NODE_FEATURES[config.env.features],) * 2 + (GRAPH_FEATURES[config.env.features],) * 2
    template = Weights(made.state_dict(), Scale(*map(torch.zeros, sizes)))
    weights = packing.from_arrays(template, arrays)
    made.load_state_dict(weights.params)
    rules = config.env.rules
    world = World(
        rules, torch.tensor(stiffness), torch.tensor([weight for _, weight in rules.reward])
    )
    return make_actor(config, world, weights.scale, made)


def _colonies(question: Question) -> Colonies:
    """Each on its own plate. A cell without an age was born in the last step, unless its colony just begins."""
    cells, positions, parents, ages, left = (torch.tensor(column) for column in question[:-1])
    used = torch.arange(parents.shape[1]) < cells[:, None]
    return colonies_at(positions, cells.long(), torch.arange(len(cells)))._replace(
        parent=parents.long(),
        age=ages.float(),
        new=used & (ages == 0) & (ages.amax(1, keepdim=True) > 0),
        left=left.long(),
    )


def inputs(config: ActorCriticConfig) -> dict[str, Input]:
    """What may be asked; where there is no cell a position is 0, a parent -1 and an age 0."""
    env, slots = config.env, config.env.max_nodes
    earlier = np.arange(slots) - 1
    return {
        "cells": Input(np.int32, (), 1, slots),
        "positions": Input(np.float32, (slots, 2), 0, np.array([env.width, env.height]), "cells"),
        "parents": Input(np.int32, (slots,), -1, earlier, "cells"),
        "ages": Input(np.int32, (slots,), 0, env.max_steps, "cells"),
        "left_moves": Input(np.int32, (), 0, env.left_limit - 1),
        "stiffness": Input(np.float32, (env.width,), FLOOR, float(np.finfo(np.float32).max)),
    }
