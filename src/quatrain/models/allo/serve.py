"""state -> arrays for inference; places -> the learned eigenvectors there"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float32

from quatrain.frameworks.jax import from_template, in_blocks, to_arrays
from quatrain.models.allo import network
from quatrain.models.allo.collect import Dataset, Encode
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State
from quatrain.serving import Input, Served


class Weights(NamedTuple):
    """Holds the part of a learner that computes features; a map is in the config."""

    params: network.Params
    input_constants: Float[Array, "row column"]


def export(config: AlloConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the encoder of the first learner and the constants of its inputs (may be empty)."""
    weights = Weights(state.params, state.input_constants)
    return to_arrays(jax.tree.map(lambda leaf: leaf[0], weights))


def request(config: AlloConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns an example: the first, the middle and the last state."""
    states = len(dataset.coords)
    return {config.world.INPUT: config.world.ask(dataset, [0, states // 2, states - 1])}


def load(config: AlloConfig, arrays: dict[str, np.ndarray]) -> Served:
    """Returns what tells the learned representation of places.

    Places are near in it if few steps of a walk lie between them (walls separate). It serves to
    measure distances, shape rewards, and find bottlenecks and options.

    Input: `cells` (n, 2), row and column from 0 at the top left; or, of a user's environment,
    `observations` (n, obs), as it returns them, flattened.
    Outputs: `eigenvectors` (n, d), the smoothest (a constant) first, each with mean square 1 over
    the training walks and arbitrary sign; of cells `state` (n,), the number of the cell among the
    free cells, row by row.

    Raises:
        ValueError: the arrays are of another config; or, when asked, a cell is in a wall.
    """
    world = config.world
    limits, answer = world.served(config, *_encode(config, arrays))
    return Served({world.INPUT: Input(*limits)}, lambda question: answer(question[world.INPUT]))


def encoder(
    config: AlloConfig, arrays: dict[str, np.ndarray]
) -> Callable[[Any], Float32[np.ndarray, "*batch d"]]:
    """Returns a function of observations, of one or of a batch, to their vectors: of a map states,
    whole numbers as in `info["state"]`, or what quatrain/Grid-v0 observes with the settings of
    `env` (`fourier`: states alone); of a user's environment what it observes.

    It raises ValueError for observations of another shape.
    """
    constants, encode = _encode(config, arrays)
    to_inputs = config.world.encoder_inputs(config, constants)

    def vectors(observations: Any) -> Float32[np.ndarray, "*batch d"]:
        inputs = to_inputs(observations)
        rows = encode(inputs.reshape(-1, inputs.shape[-1]))
        return rows.reshape(*inputs.shape[:-1], config.network.d)

    return vectors


def _encode(config: AlloConfig, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, Encode]:
    """Returns the constants of the encoder's inputs, and the encoder."""
    shape, inputs = config.world.input_sizes(config, arrays)

    def init() -> Weights:
        params = network.init(config.network, jax.random.key(0), jnp.zeros((1, inputs)))
        return Weights(params, jnp.zeros(shape))

    weights = from_template(jax.eval_shape(init), arrays)
    encode = partial(jax.jit(partial(network.apply, config.network)), weights.params)
    return np.asarray(weights.input_constants), partial(in_blocks, encode)
