"""state -> arrays for inference; observations -> the learned eigenvectors there"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32

from quatrain.frameworks.jax import packing
from quatrain.models.allo import network
from quatrain.models.allo.hosted.config import HostedAlloConfig
from quatrain.models.allo.hosted.dataset import HostedDataset, standardise
from quatrain.models.allo.learning.state import State
from quatrain.requests import Input, validate_request

INPUT = "observations"
LARGEST = float(np.finfo(np.float32).max)


class Weights(NamedTuple):
    """Holds the encoder of one learner, and the scale of observations that it expects."""

    params: network.Params
    mean: Float32[Array, " obs"]
    std: Float32[Array, " obs"]


def export(config: HostedAlloConfig, state: State, dataset: HostedDataset) -> dict[str, np.ndarray]:
    """Returns the encoder of the first learner and the scale of its observations."""
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    return packing.to_arrays(Weights(params, *state.input_constants[0]))


def request(config: HostedAlloConfig, dataset: HostedDataset) -> dict[str, np.ndarray]:
    """Returns an example: the observations of the first, the middle and the last state."""
    observations = dataset.table.observations
    return {INPUT: observations[[0, len(observations) // 2, len(observations) - 1]]}


def answer(
    config: HostedAlloConfig, arrays: dict[str, np.ndarray], request: Any
) -> dict[str, np.ndarray]:
    """Returns the learned representation of observations.

    Input: `observations` (n, obs), as the environment returns them, flattened.
    Output: `eigenvectors` (n, d), the smoothest (a constant) first, each with mean square 1 over
    the training walks and arbitrary sign.

    Raises:
        ValueError: wrong input names or shapes, numbers that are not finite, or arrays of another
            config.
    """
    size = arrays["mean"].size if "mean" in arrays else 0  # without, `from_arrays` refuses them
    specs = {INPUT: Input(np.float32, (size,), -LARGEST, LARGEST)}
    observations = validate_request("allo", request, specs)[INPUT]
    weights = packing.from_arrays(jax.eval_shape(partial(_init_weights, config, size)), arrays)
    inputs = standardise(observations, np.asarray(weights.mean), np.asarray(weights.std))
    return {"eigenvectors": np.asarray(_apply(config, weights.params, jnp.asarray(inputs)))}


def _init_weights(config: HostedAlloConfig, size: int) -> Weights:
    params = network.init(config.network, jax.random.key(0), jnp.zeros((1, size)))
    return Weights(params, jnp.zeros(size), jnp.zeros(size))


@partial(jax.jit, static_argnums=0)
def _apply(config: HostedAlloConfig, params: network.Params, inputs: Array) -> Array:
    return network.apply(config.network, params, inputs)
