"""state, held-out readings -> scores: the distance of the learned curve from the true heights."""

import numpy as np
from jaxtyping import Float

from quatrain.baselines import Gated
from quatrain.models.tides import network
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.train import State
from quatrain.statistics import aggregate_seeds

GATED = (Gated("rmse", "lower", 0.02, {"default": 0.1}, ("constant_rmse",)),)


def curves(
    config: TidesConfig, state: State, time: Float[np.ndarray, " times"]
) -> Float[np.ndarray, "seeds times"]:
    """Returns the height that each learner predicts at these times."""
    return np.asarray(state.params["weights"]) @ network.basis(config.network, time).T


def evaluate(config: TidesConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Computes `rmse` in metres against the true heights; its lower reference is a constant."""
    time, truth = dataset.held_out
    errors = [{"rmse": rmse(curve - truth)} for curve in curves(config, state, time)]
    constant = rmse(dataset.train.height.mean() - truth)
    return {**aggregate_seeds(errors, ["rmse"]), "constant_rmse": constant}


def rmse(errors: Float[np.ndarray, " times"]) -> float:
    """Computes the root of the mean squared error."""
    return float(np.sqrt(np.square(errors).mean()))
