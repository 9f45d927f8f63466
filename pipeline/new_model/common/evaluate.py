"""state, held-out samples -> scores: the distance of the learned function from the true one."""

import numpy as np
from jaxtyping import Float

from quatrain.models.sketch import network
from quatrain.models.sketch.collect import Dataset
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State
from quatrain.statistics import aggregate_seeds


def evaluate(config: SketchConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Computes `rmse` against the true values; its lower reference is the best constant."""
    inputs, targets = dataset.held_out
    predictions = network.predict(state.params, inputs)
    errors = [{"rmse": rmse(of_seed - targets)} for of_seed in predictions]
    constant = rmse(dataset.train.targets.mean() - targets)
    return {**aggregate_seeds(errors, ["rmse"]), "constant_rmse": constant}


def rmse(errors: Float[np.ndarray, " sample"]) -> float:
    """Computes the root of the mean squared error."""
    return float(np.sqrt(np.square(errors).mean()))
