"""config -> the least bytes that each verb needs."""

from quatrain.envs.grid.layouts import count_states
from quatrain.memory import ADAM, DOUBLE, FLOAT, Needs, dense
from quatrain.models.allo.config import COUNTED_STATES, AlloConfig

KEYS = ("seeds", "network.hidden", "network.layers", "train.batch_size", "collect.num_envs")
# Of a transition: two states of a byte or more, an action, and two ends; by step, and by walk.
TRANSITION = 2 * 5
# Of a sample: numbers that are drawn, and states.
SAMPLE = 5 * FLOAT


def needs(config: AlloConfig) -> Needs:
    network, train, collect = config.network, config.train, config.collect
    walks = round(collect.num_envs * (1 + collect.held_out_fraction)) * collect.steps_per_env
    states, inputs = _sizes(config)
    weights = dense([inputs, *[network.hidden] * network.layers, network.d])
    # What goes into a call of the compiled program stays while the same comes out of it.
    learners = 2 * config.seeds * weights * ADAM + weights * FLOAT
    rows = min(states, train.batch_size) if states else train.batch_size
    learning = {
        "weights and their moments": learners,
        "hidden units of a batch": rows * network.hidden * network.layers * FLOAT,
        "samples of a record": train.record_every * train.batch_size * config.seeds * SAMPLE,
    }
    data = {"transitions": walks * TRANSITION}
    has_matrix = states <= COUNTED_STATES
    truth = {"all pairs of states": 2 * states**2 * DOUBLE if has_matrix else 0}
    return Needs(
        collect=data,
        train=data | truth | learning,
        evaluate=data | truth | {"weights and their moments": learners // 2},
        keys=KEYS,
    )


def _sizes(config: AlloConfig) -> tuple[int, int]:
    """Returns the number of states and of inputs; an environment of a user tells them later."""
    if not hasattr(config.env, "map"):
        return 0, 1
    states = count_states(config.env.map)
    fourier = config.env.fourier
    return states, 2 + 2 * fourier.count if fourier else 2
