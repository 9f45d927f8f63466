"""state -> arrays for serving; times of the day -> the height of the water."""

from functools import partial

import jax
import numpy as np

from quatrain.frameworks.jax import packing
from quatrain.models.tides import network
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.train import State
from quatrain.requests import Input, validate_request

LARGEST = 1e6


def export(config: TidesConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the weights of the first learner."""
    return packing.to_arrays({"params": jax.tree.map(lambda leaf: leaf[0], state.params)})


def request(config: TidesConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the first held-out times."""
    return {"time": dataset.held_out.time[:3]}


def answer(
    config: TidesConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Computes the height of the water at these times.

    Input: `time` (n,), in days; every day is alike.
    Output: `height` (n,), in metres above the mean.

    Raises:
        ValueError: the request has other inputs, another shape or a time beyond a million days,
            or the arrays are of another config.
    """
    time = validate_request("tides", request, {"time": Input(np.float64, (), -LARGEST, LARGEST)})[
        "time"
    ]
    params = packing.from_arrays(jax.eval_shape(partial(_init, config)), arrays)["params"]
    return {"height": network.basis(config.network, time) @ np.asarray(params["weights"])}


def _init(config: TidesConfig) -> dict[str, network.Params]:
    return {"params": network.init(config.network, jax.random.key(0))}
