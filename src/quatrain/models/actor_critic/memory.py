"""config -> about how many bytes each verb needs."""

import math
from typing import Any

import numpy as np

from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.host.convolutions import FEATURES, count_units, count_weights
from quatrain.memory import ADAM, FLOAT, TORCH_COPIES, Needs, dense

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
# Of a transition beside observation, action, reward and values: log-probability and two ends.
TRANSITION = FLOAT + 2
# Of each number of an action: the draw and two parameters of its distribution.
DRAWN = 3 * FLOAT


def needs(config: Any, interface: Any = None) -> Needs:
    built_in = not config.brings_env
    train, network = config.train, config.network
    d, layers = network.d, network.layers
    attends = built_in and network.encoder == "attention"
    # A user's environment tells its sizes only when it is made.
    inputs = interface.observation_size if interface else 1
    actions = sum(interface.action_counts) + len(interface.action_low) if interface else 1
    image = interface.image if interface else ()
    number = np.dtype(interface.observation_dtype).itemsize if interface else FLOAT
    components = 1
    if built_in:
        inputs = GRAPH_FEATURES[config.env.features]
        actions = len(config.env.action.active_params)
        components = len(config.env.reward.weighted)
    # Queries, keys, values and outputs, and two layers of 2 d units; or two networks.
    weights = 8 * layers * d**2 if attends else 2 * dense([inputs, *[d] * layers])
    units = d * layers
    if image:
        features, pixels = [count_units(image)[-1], FEATURES], math.prod(image)
        weights = count_weights(image) + dense(features)
        weights += 2 * dense([FEATURES + inputs - pixels, *[d] * layers])
        # As numbers, and with what comes back to learn by.
        units += 2 * (pixels + sum(count_units(image)) + FEATURES)
    cells = config.env.max_nodes if attends else 0
    node = NODE_FEATURES[config.env.features] * FLOAT + 2 if attends else 0
    values = 1 if network.value_heads == "total" else components
    transition = TRANSITION + actions * DRAWN + (components + 2 * values) * FLOAT
    rollout = train.num_envs * train.horizon * (inputs * number + cells * node + transition)
    # A batch is as wide as its largest colony, and a colony begins with some cells.
    tokens = 1 + (config.env.n0_min if attends else 0)
    batch = min(train.minibatch_size, train.num_envs * train.horizon) * tokens
    learners = config.seeds * weights * (ADAM + FLOAT)  # with the best weights
    colonies = 0
    if built_in:
        most = max(config.collect.held_out_colonies, train.num_envs)
        colonies = most * config.env.max_nodes * PLACE
    data = {"colonies": colonies}
    return Needs(
        collect=data,
        train=data
        | {
            "weights and their moments": TORCH_COPIES * learners,
            "rollout": rollout,
            "hidden units of a minibatch": batch * units * FLOAT,
        },
        evaluate=data | {"weights and their moments": learners},
        keys=KEYS,
    )
