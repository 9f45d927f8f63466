"""config -> about how many bytes each verb needs."""

import math
from typing import Any

from quatrain.envs.host.convolutions import count_units, count_weights
from quatrain.memory import ADAM, COPIES, FLOAT, Needs, dense
from quatrain.models.iqn.config import LearnerConfig

KEYS = (
    "seeds",
    "env.worlds",
    "train.capacity",
    "train.batch_size",
    "train.evaluation_worlds",
    "network.hidden",
    "collect.turns",
)
# The state of the last yield is kept while a record is made.
KEPT_COPIES = COPIES + 1


def needs(config: LearnerConfig, interface: Any = None) -> Needs:
    network, train = config.network, config.train
    agents, frame = config.observed(interface)
    agents *= config.seeds
    image = interface.image if interface else ()
    inputs, filters, units = network.frames * frame, 0, 0
    if image:
        stack = (*image[:2], network.frames * image[2])
        filters, units = count_weights(stack), math.prod(stack) + sum(count_units(stack))
        inputs += count_units(stack)[-1] - math.prod(stack)
    weights = (
        dense([inputs, network.hidden])
        + dense([network.cosines, network.hidden])
        + dense([network.hidden, network.hidden, 1])
        + filters
    )
    # With targets and the best networks.
    learners = agents * weights * (ADAM + 2 * FLOAT)
    transition = config.turn_bytes(interface)
    worlds = max(config.env.worlds, train.evaluate_every and (train.evaluation_worlds or 0))
    # An agent learns or acts in all worlds, in turns.
    rows = max(train.batch_size * train.loss.quantiles, 2 * worlds * train.acting.quantiles)
    data = {"transitions": transition * config.collect.turns}
    learning = {
        "networks and their moments": KEPT_COPIES * learners,
        "replay": KEPT_COPIES * transition * config.slots,
        # Those of images with what comes back to learn by, and for two networks of the targets.
        "hidden units": (rows * network.hidden + 4 * train.batch_size * units) * FLOAT,
    }
    return Needs(
        collect=data,
        train=data | learning,
        evaluate=data | {"networks and their moments": learners},
        keys=KEYS,
    )
