"""state, held-out samples -> scores: the distance of the learned function from the true one."""

import numpy as np
from jaxtyping import Float

from quatrain.models.sketch import network
from quatrain.models.sketch.collect import Dataset
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State, to_arrays
from quatrain.progress import Evaluation
from quatrain.statistics import aggregate_seeds


def evaluate(config: SketchConfig, state: State, dataset: Dataset, seed: int) -> Evaluation:
    """Computes `rmse` against the true values; its lower reference is the best constant."""
    targets, predicted = dataset.held_out.targets, predictions(state, dataset)
    squares = np.square(predicted - targets).mean(-1)
    scores = aggregate_seeds([{"rmse": float(rmse)} for rmse in np.sqrt(squares)], ["rmse"])
    return Evaluation(scores | {"constant_rmse": float(targets.std())}, predicted)


def predictions(state: State, dataset: Dataset) -> Float[np.ndarray, "seed sample"]:
    """Computes the values of all learners at the held-out points."""
    arrays = to_arrays(state)
    params = {name.removeprefix("params/"): array for name, array in arrays.items()}
    return network.predict(params, dataset.held_out.inputs)
