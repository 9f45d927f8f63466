"""state -> arrays for serving; times of the day -> the height of the water."""

import jax
import numpy as np

from quatrain.frameworks.jax import packing
from quatrain.models.tides import network
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.train import State
from quatrain.requests import Input, validate_request

INPUTS = {"time": Input(np.float64, (), -1e6, 1e6)}


def export(config: TidesConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the weights of the first learner."""
    return {"weights": np.asarray(state.params["weights"][0])}


def request(config: TidesConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the first held-out times."""
    return {"time": dataset.held_out.time[:3]}


def answer(
    config: TidesConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Computes `height` (n,), in metres above the mean, at `time` (n,), in days."""
    time = validate_request("tides", request, INPUTS)["time"]
    basis = network.basis(config.network, time)
    expected = {"weights": jax.ShapeDtypeStruct(basis.shape[1:], basis.dtype)}
    return {"height": basis @ np.asarray(packing.from_arrays(expected, arrays)["weights"])}
