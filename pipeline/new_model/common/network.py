"""points -> values: a network with one hidden layer, of several learners at once.

Written for numpy, JAX and torch alike; replace it by modules of your framework.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from quatrain.models.sketch.collect import INPUTS
from quatrain.models.sketch.config import SketchConfig

# Name -> weights, whose first axis is the seed.
Params = Mapping[str, Any]


def shapes(config: SketchConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array of weights."""
    seeds, hidden = config.seeds, config.network.hidden
    return {
        "hidden_weight": (seeds, INPUTS, hidden),
        "hidden_bias": (seeds, hidden),
        "output_weight": (seeds, hidden),
        "output_bias": (seeds,),
    }


def init(config: SketchConfig, seed: int) -> dict[str, np.ndarray]:
    """Draws weights; hidden units bend at different places, and outputs are small."""
    rng = np.random.default_rng(seed)
    params = {
        name: rng.standard_normal(shape, np.float32) for name, shape in shapes(config).items()
    }
    return params | {name: 0.01 * params[name] for name in ("output_weight", "output_bias")}


def apply(params: Params, inputs: Float[Any, "#seed sample input"]) -> Float[Any, "seed sample"]:
    """Computes w · max(V x + a, 0) + b."""
    hidden = (inputs @ params["hidden_weight"] + params["hidden_bias"][:, None]).clip(0)
    values = (hidden * params["output_weight"][:, None]).sum(-1)
    return values + params["output_bias"][:, None]


def predict(
    params: Mapping[str, np.ndarray], inputs: Float[np.ndarray, "sample input"]
) -> Float[np.ndarray, "seed sample"]:
    """Computes the values of the same points for all learners."""
    return apply(params, inputs[None])
