"""config -> the least bytes that each verb needs."""

from typing import Any

from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES
from quatrain.memory import ADAM, FLOAT, Needs, dense

KEYS = (
    "seeds",
    "network.d",
    "network.layers",
    "train.num_envs",
    "train.horizon",
    "train.minibatch_size",
    "collect.held_out_colonies",
)
# x and y of a cell.
PLACE = 2 * FLOAT
# Of a transition beside its observation: log-probability, value, next value, and two ends.
TRANSITION = 3 * FLOAT + 2


def needs(config: Any) -> Needs:
    """Returns the bytes for colonies, or for a user's environment, of whose observations only one
    number is certain.
    """
    built_in = not config.brings_env
    train, network = config.train, config.network
    d, layers = network.d, network.layers
    attends = built_in and network.encoder == "attention"
    inputs = GRAPH_FEATURES[config.env.features] if built_in else 1
    # Queries, keys, values and outputs, and two layers of 2 d units; or two networks.
    weights = 8 * layers * d**2 if attends else 2 * dense([inputs, *[d] * layers])
    cells = config.env.max_nodes if attends else 0
    node = NODE_FEATURES[config.env.features] * FLOAT + 2 if attends else 0
    rollout = train.num_envs * train.horizon * (inputs * FLOAT + cells * node + TRANSITION)
    # A batch is as wide as its largest colony, and a colony begins with some cells.
    tokens = 1 + (config.env.n0_min if attends else 0)
    batch = min(train.minibatch_size, train.num_envs * train.horizon) * tokens
    learning = {
        # What learns and a record of it, each with its best weights; gradients of one at a time.
        "weights and their moments": weights * (2 * config.seeds * ADAM + 2 * FLOAT),
        "rollout": rollout,
        "hidden units of a minibatch": batch * d * layers * FLOAT,
    }
    data = _data(config) if built_in else {}
    evaluating = config.collect.held_out_colonies * tokens * d * FLOAT if built_in else 0
    return Needs(
        collect=data,
        train=data | learning,
        evaluate=data
        | {
            "weights and their moments": weights * config.seeds * ADAM,
            "held-out colonies": evaluating,
        },
        keys=KEYS,
    )


def _data(config: Any) -> dict[str, int]:
    collect, env = config.collect, config.env
    plates = collect.n_train + collect.n_held_out + collect.n_outside
    colonies = collect.held_out_colonies + collect.validation_colonies
    return {
        "plates": plates * env.width * FLOAT,
        "colonies": max(colonies, config.train.num_envs) * env.max_nodes * PLACE,
    }
