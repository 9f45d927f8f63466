"""config -> the least bytes that each verb needs."""

from typing import Any

from quatrain.memory import ADAM, COPIES, FLOAT, Needs, dense
from quatrain.models.sketch.config import SketchConfig

KEYS = ("seeds", "network.hidden", "collect.samples", "train.batch_size")
# Of a sample: two coordinates and a target.
SAMPLE = 3 * FLOAT


def needs(config: SketchConfig, interface: Any = None) -> Needs:
    """Returns the sizes of the largest arrays: of the data, and of what learns from them."""
    data = {"samples": 2 * config.collect.samples * SAMPLE}
    hidden = config.network.hidden
    learners = {"weights and their moments": config.seeds * dense([2, hidden, 1]) * COPIES * ADAM}
    batch = {"hidden units of a batch": config.train.batch_size * hidden * FLOAT}
    return Needs(collect=data, train=data | learners | batch, evaluate=data | learners, keys=KEYS)
