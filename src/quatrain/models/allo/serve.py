"""state -> arrays for inference; cells of the map -> the learned eigenvectors there."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from quatrain.envs.grid import dynamics
from quatrain.envs.grid.layouts import Layout, count_states
from quatrain.frameworks.jax import packing
from quatrain.models.allo import network
from quatrain.models.allo.collect import Dataset, draw_frequencies, encoder_inputs
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.state import State
from quatrain.requests import Input, validate_request

INPUT = "cells"


class Weights(NamedTuple):
    """Holds the part of a learner that computes features; the map is in the config."""

    params: network.Params
    frequencies: Float[Array, "count 2"]


def export(config: AlloConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the encoder of the first learner and its Fourier frequencies (may be empty)."""
    return packing.to_arrays(
        jax.tree.map(lambda leaf: leaf[0], Weights(state.params, state.input_constants))
    )


def request(config: AlloConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns an example: the first, the middle and the last free cell."""
    coords = np.asarray(dataset.grid.coords)
    return {
        INPUT: np.ascontiguousarray(
            coords[[0, len(coords) // 2, len(coords) - 1]][:, ::-1], np.int32
        )
    }


def answer(
    config: AlloConfig,
    arrays: dict[str, np.ndarray],
    request: Any,
) -> dict[str, np.ndarray]:
    """Returns the learned representation of cells.

    Cells are near in it if few steps of a walk lie between them (walls separate). It serves to
    measure distances, shape rewards, and find bottlenecks and options.

    Input: `cells` (n, 2), row and column from 0 at the top left.
    Outputs: `eigenvectors` (n, d), the smoothest (a constant) first, each with mean square 1 over
    the training walks and arbitrary sign; `state` (n,), the number of the cell among the free
    cells, row by row.

    Raises:
        ValueError: wrong input names or shapes, a cell outside the map or in a wall, or arrays of
            another config.
    """
    state = _states(config.env.map, request)
    return {"eigenvectors": _table(config, arrays)[state], "state": state}


def _table(config: AlloConfig, arrays: dict[str, np.ndarray]) -> Float[np.ndarray, "states d"]:
    """Computes the features of all states: one program, and answers that are independent."""
    grid = dynamics.make_grid(config.env.map)
    weights = packing.from_arrays(jax.eval_shape(partial(_init_weights, config, grid)), arrays)
    return np.asarray(
        _apply(
            config,
            weights.params,
            jnp.asarray(encoder_inputs(config.env, grid, np.asarray(weights.frequencies))),
        )
    )


def _init_weights(config: AlloConfig, grid: dynamics.Grid) -> Weights:
    frequencies = draw_frequencies(config.env, seed=0)
    params = network.init(
        config.network,
        jax.random.key(0),
        jnp.asarray(encoder_inputs(config.env, grid, frequencies)),
    )
    return Weights(params, jnp.asarray(frequencies))


@partial(jax.jit, static_argnums=0)
def _apply(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    return network.apply(config.network, params, inputs)


def _states(layout: Layout, request: Any) -> Int32[np.ndarray, " questions"]:
    numbers = np.full(layout.walls.shape, -1, np.int32)
    numbers[~layout.walls] = np.arange(count_states(layout))
    specs = {INPUT: Input(np.int32, (2,), 0, np.array(numbers.shape) - 1)}
    cells = validate_request("allo", request, specs)[INPUT]
    states = numbers[tuple(cells.T)]
    if (states < 0).any():
        first = int(states.argmin())
        row, column = cells[first].tolist()
        raise ValueError(
            f"allo: {INPUT}[{first}], row {row} and column {column}, is a wall ({layout.name}); "
            "give cells that can be walked on, counted from 0 at the top left"
        )
    return states
