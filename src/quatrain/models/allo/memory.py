"""config -> about how many bytes each verb needs."""

from typing import Any

from quatrain.envs.grid.layouts import count_states
from quatrain.memory import ADAM, COPIES, DOUBLE, FLOAT, Needs, dense
from quatrain.models.allo.config import COUNTED_STATES, AlloConfig

KEYS = ("seeds", "network.hidden", "network.layers", "train.batch_size", "collect.num_envs")
# Of a transition: its state, its end, how many follow and its slot; of a file and of the device.
TRANSITION = 2 * 8
# Of a sample: numbers that are drawn, and states.
SAMPLE = 5 * FLOAT


def needs(config: AlloConfig, interface: Any = None) -> Needs:
    network, train, collect = config.network, config.train, config.collect
    walks = round(collect.num_envs * (1 + collect.held_out_fraction)) * collect.steps_per_env
    if getattr(config.env, "path", None):
        # A recording tells itself how many there are, once it is read.
        walks = interface.max_episode_steps if interface else 0
    states, inputs = _sizes(config, interface)
    weights = config.seeds * dense([inputs, *[network.hidden] * network.layers, network.d])
    rows = states if states and train.encodes_table(states) else train.samples
    data = {"transitions": walks * TRANSITION}
    if config.brings_env:
        data["observations"] = COPIES * 2 * walks * inputs * FLOAT
    collected = dict(data)
    if states <= COUNTED_STATES:
        data["all pairs of states"] = 2 * states**2 * DOUBLE
    learning = {
        "weights and their moments": COPIES * weights * ADAM,
        "hidden units of a step": rows * network.hidden * network.layers * FLOAT,
        "samples of a record": train.record_every * train.batch_size * config.seeds * SAMPLE,
    }
    return Needs(
        collect=collected,
        train=data | learning,
        evaluate=data | {"weights and their moments": weights * ADAM},
        keys=KEYS,
    )


def _sizes(config: AlloConfig, interface: Any) -> tuple[int, int]:
    """Returns the number of states and of inputs; of a user's environment states are unknown."""
    if not hasattr(config.env, "map"):
        return 0, interface.vector[1] if interface else 1
    fourier = config.env.fourier
    return count_states(config.env.map), 2 + 2 * fourier.count if fourier else 2
