"""learner -> the arrays that answer without it; cells of the map -> the learned eigenvectors there."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from quatrain.envs.grid import dynamics
from quatrain.envs.grid.layouts import Layout, count_states
from quatrain.frameworks.jax import packing
from quatrain.models.allo import network
from quatrain.models.allo.collect import Dataset, inputs_of
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State
from quatrain.requests import Input, validate_request

INPUT = "cells"


class Weights(NamedTuple):
    """What of a learner makes features of states; the map is in the config."""

    params: network.Params
    frequencies: Float[Array, "count 2"]


def export(config: AlloConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """The encoder of the first learner, and its Fourier frequencies (none: an empty array)."""
    return packing.to_arrays(
        jax.tree.map(lambda leaf: leaf[0], Weights(state.params, state.frequencies))
    )


def request(config: AlloConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """The first, the middle and the last cell that can be walked on: held-out walks have no cells of their own."""
    coords = np.asarray(dataset.grid.coords)
    asked = coords[[0, len(coords) // 2, len(coords) - 1]]
    return {INPUT: np.ascontiguousarray(asked[:, ::-1], np.int32)}


def answer(
    config: AlloConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the learned representation says of cells; cells near in walking time are near in it, through walls they are
    not, so it measures distances, shapes rewards and finds bottlenecks and options.

    Input: `cells` (n, 2), row and column from 0 at the top left.
    Outputs: `eigenvectors` (n, d), the smoothest first and that one constant, each with mean square 1 over the training
    walks and of arbitrary sign; `state` (n,), the number of the cell among those that can be walked on, row by row.

    Raises:
        ValueError: other inputs or another shape, a cell outside the map or in a wall; arrays of another config.
    """
    state = _states(config.env.map, request)
    return {"eigenvectors": _table(config, arrays)[state], "state": state}


def _table(config: AlloConfig, arrays: dict[str, np.ndarray]) -> Float[np.ndarray, "states d"]:
    """Of every state, whatever is asked: one program for all requests, and no answer depends on another question."""
    grid = dynamics.make_grid(config.env.map)
    weights = packing.from_arrays(
        jax.eval_shape(partial(_fresh, config, *inputs_of(config.env, grid))), arrays
    )
    _, inputs = inputs_of(config.env, grid, frequencies=np.asarray(weights.frequencies))
    return np.asarray(_apply(config, weights.params, jnp.asarray(inputs)))


def _fresh(config: AlloConfig, frequencies: np.ndarray, inputs: np.ndarray) -> Weights:
    return Weights(
        network.init(config.network, jax.random.key(0), jnp.asarray(inputs)),
        jnp.asarray(frequencies),
    )


@partial(jax.jit, static_argnums=0)
def _apply(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    return network.apply(config.network, params, inputs)


def _states(layout: Layout, request: dict[str, np.ndarray]) -> Int32[np.ndarray, " questions"]:
    """The numbers of the cells that are asked for."""
    numbers = np.full(layout.walls.shape, -1, np.int32)
    numbers[~layout.walls] = np.arange(count_states(layout))
    cells = validate_request(
        "allo", request, {INPUT: Input(np.int32, (2,), 0, np.array(numbers.shape) - 1)}
    )[INPUT]
    states = numbers[tuple(cells.T)]
    if (states < 0).any():
        first = int(states.argmin())
        row, column = cells[first].tolist()
        raise ValueError(
            f"allo: {INPUT}[{first}], row {row} and column {column}, is a wall ({layout.name}); "
            "give cells that can be walked on, counted from 0 at the top left"
        )
    return states
