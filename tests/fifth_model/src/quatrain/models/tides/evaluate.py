"""state, held-out readings -> scores: the distance of the learned curve from the true heights."""

import numpy as np
from jaxtyping import Float

from quatrain.baselines import Gated
from quatrain.models.tides import network
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.train import State
from quatrain.statistics import aggregate_seeds

GATED = (
    Gated("rmse", "lower", 0.02, {"default": 0.1}, ("constant_rmse",), ("least_squares_rmse",)),
)


def curves(
    config: TidesConfig, state: State, time: Float[np.ndarray, " times"]
) -> Float[np.ndarray, "seeds times"]:
    """Returns the height that each learner predicts at these times."""
    return np.asarray(state.params["weights"]) @ network.basis(config.network, time).T


def evaluate(config: TidesConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Computes `rmse` in metres against the true heights.

    Lower reference: the mean of all readings. Upper reference: the best sum of these harmonics.
    """
    time, truth = dataset.held_out
    errors = [{"rmse": rmse(curve, truth)} for curve in curves(config, state, time)]
    best = np.linalg.lstsq(network.basis(config.network, dataset.train.time), dataset.train.height)
    return {
        **aggregate_seeds(errors, ["rmse"]),
        "constant_rmse": rmse(np.full(len(truth), dataset.train.height.mean()), truth),
        "least_squares_rmse": rmse(network.basis(config.network, time) @ best[0], truth),
    }


def rmse(predicted: Float[np.ndarray, " times"], truth: Float[np.ndarray, " times"]) -> float:
    """Computes the root of the mean squared error."""
    return float(np.sqrt(np.square(predicted - truth).mean()))
