"""config -> the least bytes that each verb needs."""

from quatrain.memory import ADAM, FLOAT, Needs, dense
from quatrain.models.iqn.config import TRANSITION, IqnConfig, LearnerConfig

KEYS = (
    "seeds",
    "env.worlds",
    "train.capacity",
    "train.batch_size",
    "train.evaluation_worlds",
    "network.hidden",
    "collect.turns",
)


def needs(config: LearnerConfig) -> Needs:
    network = config.network
    built_in = isinstance(config, IqnConfig)
    # A user's environment tells the size of its observations, and its agents, only when it is made.
    frame = config.env.frame_size if built_in else FLOAT
    agents = config.seeds * (config.env.agents if built_in else 1)
    inputs = network.frames * (frame if built_in else 1)
    weights = (
        dense([inputs, network.hidden])
        + dense([network.cosines, network.hidden])
        + dense([network.hidden, network.hidden, 1])
    )
    # What goes into a call of the compiled program stays while the same comes out of it.
    learners = 2 * agents * weights * (ADAM + FLOAT)
    transition = agents * config.env.worlds * (frame + TRANSITION)
    data = {"transitions": transition * config.collect.turns}
    learning = {
        "networks and their moments": learners,
        "replay": 2 * transition * config.slots,
        **_hidden_units(config),
    }
    return Needs(
        collect=data,
        train=data | learning,
        evaluate=data | {"networks and their moments": learners // 2},
        keys=KEYS,
    )


def _hidden_units(config: LearnerConfig) -> dict[str, int]:
    """Returns the larger of what a batch needs, and what goes into and out of the hidden layer when
    one agent acts in all worlds: they take turns.
    """
    train = config.train
    worlds = max(config.env.worlds, train.evaluation_worlds if train.evaluate_every else 0)
    rows = {
        "hidden units of a batch": train.batch_size * train.loss.quantiles,
        "hidden units of acting": 2 * worlds * train.acting.quantiles,
    }
    name = max(rows, key=lambda name: rows[name])
    return {name: rows[name] * config.network.hidden * FLOAT}
