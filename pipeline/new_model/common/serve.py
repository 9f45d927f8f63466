"""state -> arrays for serving; points -> values of the learned function."""

import numpy as np

from quatrain.frameworks.packing import ArraySpec, verify
from quatrain.models.sketch import network
from quatrain.models.sketch.collect import INPUTS, Dataset
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State, to_arrays
from quatrain.serving import Input, Served


def export(config: SketchConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the weights of the first learner."""
    params = to_arrays(state)
    return {name: np.array(params[f"params/{name}"][0]) for name in network.shapes(config)}


def request(config: SketchConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the first held-out points."""
    return {"inputs": dataset.held_out.inputs[:2]}


def load(config: SketchConfig, arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes `values` (n,) at `inputs` (n, 2), each in -1..1.

    Raises:
        ValueError: the arrays are of another config.
    """
    dtype = np.dtype(np.float32)
    specs = {name: ArraySpec(dtype, shape[1:]) for name, shape in network.shapes(config).items()}
    verify(arrays, specs)
    params = {name: array[None] for name, array in arrays.items()}

    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"values": network.predict(params, question["inputs"])[0]}

    return Served({"inputs": Input(np.float32, (INPUTS,), -1, 1)}, compute)
