"""points -> values: a network with one hidden layer, of several learners at once."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from quatrain.models.sketch.collect import INPUTS
from quatrain.models.sketch.config import SketchConfig

# Name -> weights, whose first axis is the seed.
Params = dict[str, Array]


def shapes(config: SketchConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array of weights."""
    seeds = config.seeds
    hidden = config.network.hidden
    return {
        "hidden_weight": (seeds, INPUTS, hidden),
        "hidden_bias": (seeds, hidden),
        "output_weight": (seeds, hidden),
        "output_bias": (seeds,),
    }


def init(config: SketchConfig, key: Key[Array, ""]) -> Params:
    """Draws weights; hidden units bend at different places, and outputs are small."""
    scales = {"hidden_weight": 1.0, "hidden_bias": 1.0, "output_weight": 0.01, "output_bias": 0.01}
    keys = jax.random.split(key, len(scales))
    return {
        name: scales[name] * jax.random.normal(of_name, shape)
        for of_name, (name, shape) in zip(keys, shapes(config).items(), strict=True)
    }


def apply(
    params: Params, inputs: Float[Array, "#seed sample input"]
) -> Float[Array, "seed sample"]:
    """Computes w · tanh(V x + a) + b."""
    hidden = jnp.tanh(inputs @ params["hidden_weight"] + params["hidden_bias"][:, None])
    values = jnp.einsum("snh,sh->sn", hidden, params["output_weight"])
    return values + params["output_bias"][:, None]


def predict(
    params: Mapping[str, Any], inputs: Float[np.ndarray, "sample input"]
) -> Float[np.ndarray, "seed sample"]:
    """Computes `apply` of the same points for all learners, as a numpy array."""
    arrays = {name: jnp.asarray(values) for name, values in params.items()}
    return np.asarray(_apply(arrays, jnp.asarray(inputs)[None]))


_apply = jax.jit(apply)
