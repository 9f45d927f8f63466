"""learner, held-out readings -> scores: how far the learned curve is from the water."""

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
    """What each learner says of these times."""
    return np.asarray(state.params["weights"]) @ network.basis(config.network, time).T


def evaluate(config: TidesConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """`rmse` in metres against the true heights; floor: the mean of all readings; ceiling: the best of such curves."""
    time, truth = dataset.held_out
    errors = [{"rmse": rmse(curve, truth)} for curve in curves(config, state, time)]
    best = np.linalg.lstsq(network.basis(config.network, dataset.train.time), dataset.train.height)[
        0
    ]
    return {
        **aggregate_seeds(errors, [gated.metric for gated in GATED]),
        "constant_rmse": rmse(np.full(len(truth), dataset.train.height.mean()), truth),
        "least_squares_rmse": rmse(network.basis(config.network, time) @ best, truth),
    }


def rmse(found: Float[np.ndarray, " times"], truth: Float[np.ndarray, " times"]) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.square(found - truth).mean()))
