"""config -> about how many bytes each verb needs."""

from typing import Any

from quatrain.memory import ADAM, COPIES, FLOAT, Needs, dense
from quatrain.models.iqn.config import TRANSITION, LearnerConfig

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
    weights = (
        dense([network.frames * frame, network.hidden])
        + dense([network.cosines, network.hidden])
        + dense([network.hidden, network.hidden, 1])
    )
    # With targets and the best networks.
    learners = agents * weights * (ADAM + 2 * FLOAT)
    transition = agents * config.env.worlds * (frame * config.NUMBER + TRANSITION)
    worlds = max(config.env.worlds, train.evaluate_every and (train.evaluation_worlds or 0))
    # An agent learns or acts in all worlds, in turns.
    rows = max(train.batch_size * train.loss.quantiles, 2 * worlds * train.acting.quantiles)
    data = {"transitions": transition * config.collect.turns}
    learning = {
        "networks and their moments": KEPT_COPIES * learners,
        "replay": KEPT_COPIES * transition * config.slots,
        "hidden units": rows * network.hidden * FLOAT,
    }
    return Needs(
        collect=data,
        train=data | learning,
        evaluate=data | {"networks and their moments": learners},
        keys=KEYS,
    )
