"""errors of arms at checkpoints -> how many times the active arm's transitions another one needs"""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.stats import DegenerateDataWarning

from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import checkpoint_steps
from quatrain.statistics import Interval, bootstrap_interval, median_interval

# Bootstrap resamples of the replicates.
RESAMPLES = 1000
# Lower bound of errors before the logarithm.
SMALLEST = 1e-12


class SameError(NamedTuple):
    """Holds an error, and the transitions after which an arm and the active one have reached it.

    These are NaN if the error is no smaller than what one of them began with: an arm that learns
    nothing, or diverges, reaches no error that could be compared.
    """

    error: float
    arm: float
    active: float

    @property
    def ratio(self) -> float:
        return self.arm / self.active


def same_error(
    steps: tuple[int, ...],
    errors: Float64[np.ndarray, " checkpoint"],
    active: Float64[np.ndarray, " checkpoint"],
) -> SameError:
    """Compares an arm with the active one at the larger of both final errors: both reach it.

    An arm has the ratio 1 against itself, and the inverse with the arms exchanged.
    """
    target = float(np.maximum(errors[-1], active[-1]))
    if not target < np.minimum(errors[0], active[0]):
        return SameError(target, np.nan, np.nan)
    return SameError(target, reached_at(steps, errors, target), reached_at(steps, active, target))


def ratios(
    config: ActiveDynamicsConfig, nrmse: Float64[np.ndarray, "checkpoint learner"]
) -> dict[str, float]:
    """Computes `transition_ratio` of each arm but the active one, from medians over replicates."""
    arms = config.train.arms
    if "active" not in arms:
        return {}
    medians = np.median(nrmse.reshape(len(nrmse), len(arms), -1), axis=2)
    active = medians[:, arms.index("active")]
    steps = checkpoint_steps(config)
    return {
        f"transition_ratio.{arm}": same_error(steps, medians[:, place], active).ratio
        for place, arm in enumerate(arms)
        if arm != "active"
    }


def ratio_interval(
    config: ActiveDynamicsConfig,
    nrmse: Float64[np.ndarray, "checkpoint learner"],
    name: str,
    seed: int,
) -> Interval | None:
    """Computes the interval of one of `ratios`.

    Returns None if there are too few replicates, or a resample has no ratio.
    """
    by_arm = nrmse.reshape(len(nrmse), len(config.train.arms), -1)
    replicates = np.arange(by_arm.shape[2], dtype=float)
    if median_interval(replicates) is None:
        return None

    def resampled_ratio(selected: np.ndarray) -> float:
        resampled = by_arm[..., selected.astype(int)].reshape(len(nrmse), -1)
        return ratios(config, resampled)[name]

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        return np.apply_along_axis(resampled_ratio, axis, drawn)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # of resamples without a ratio
        rng = np.random.default_rng(seed)
        interval = bootstrap_interval([replicates], statistic, rng, RESAMPLES)
    return interval if np.isfinite(interval).all() else None


def reached_at(
    steps: tuple[int, ...], errors: Float64[np.ndarray, " checkpoint"], target: float
) -> float:
    """Computes the transitions after which an error stays at or below `target`.

    The first error is above `target`, the last is not. Errors are interpolated between checkpoints,
    log against log.
    """
    place = int(np.flatnonzero(errors > target)[-1]) + 1
    after = np.log(max(errors[place], SMALLEST))
    before = np.log(errors[place - 1])
    share = (before - np.log(max(target, SMALLEST))) / (before - after)
    growth = np.log(steps[place] / steps[place - 1])
    return float(np.exp(np.log(steps[place - 1]) + share * growth))
