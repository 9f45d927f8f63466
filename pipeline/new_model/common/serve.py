"""state -> arrays for serving; points -> values of the learned function."""

from typing import Any

import numpy as np

from quatrain.frameworks.packing import ArraySpec, verify
from quatrain.models.sketch import network
from quatrain.models.sketch.collect import INPUTS, Dataset
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State, to_arrays
from quatrain.requests import Input, validate_request

REQUEST = {"inputs": Input(np.float32, (INPUTS,), -1, 1)}


def export(config: SketchConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the weights of the first learner."""
    params = to_arrays(state)
    return {name: np.array(params[f"params/{name}"][0]) for name in network.shapes(config)}


def request(config: SketchConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the first held-out points."""
    return {"inputs": dataset.held_out.inputs[:2]}


def answer(
    config: SketchConfig, arrays: dict[str, np.ndarray], request: Any
) -> dict[str, np.ndarray]:
    """Computes `values` (n,) at `inputs` (n, 2), each in -1..1.

    Raises:
        ValueError: the request or the arrays do not fit.
    """
    inputs = validate_request("sketch", request, REQUEST)["inputs"]
    dtype = np.dtype(np.float32)
    specs = {name: ArraySpec(dtype, shape[1:]) for name, shape in network.shapes(config).items()}
    verify(arrays, specs)
    params = {name: array[None] for name, array in arrays.items()}
    return {"values": network.predict(params, inputs)[0]}
