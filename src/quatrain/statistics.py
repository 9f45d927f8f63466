"""numbers of several learners or worlds -> one number and its confidence interval."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

# Numbers per column that a bootstrap draws at once.
LARGEST_DRAW = 10**7


class Interval(NamedTuple):
    """Holds a 95 % confidence interval."""

    low: float
    high: float


def aggregate_seeds(
    per_learner: Sequence[Mapping[str, float]],
    gated: Sequence[str],
) -> dict[str, float]:
    """Averages scores over learners; gated metrics of several learners also get `_sd` and the 95 %
    `_low`, `_high`.

    A verdict uses the interval as noise (`baselines.judge`).
    """
    columns = {name: np.array([scores[name] for scores in per_learner]) for name in per_learner[0]}
    means = {name: float(values.mean()) for name, values in columns.items()}
    if len(per_learner) > 1:
        for name in gated:
            half = float(half_interval(columns[name]))
            means[f"{name}_sd"] = float(columns[name].std(ddof=1))
            means[f"{name}_low"] = means[name] - half
            means[f"{name}_high"] = means[name] + half
    return means


def half_interval(values: Float[np.ndarray, "samples *axes"]) -> Float[np.ndarray, "*axes"]:
    """Computes half the width of the 95 % interval of the mean, t(0.975, n−1)·sd/√n; 0 for one
    sample.
    """
    samples = len(values)
    if samples == 1:
        return np.zeros(values.shape[1:])
    quantile = scipy.stats.t.ppf(0.975, samples - 1)
    return np.asarray(quantile * values.std(0, ddof=1) / np.sqrt(samples))


def interquartile_mean(values: Float[np.ndarray, " values"]) -> float:
    """Computes the mean without the lowest and the highest quarter.

    Source: 'Deep RL at the Edge of the Statistical Precipice' (2021).
    """
    return float(scipy.stats.trim_mean(values, 0.25))


def bootstrap_interval(
    columns: Sequence[Float[np.ndarray, " units"]],
    statistic: Callable[..., Float[np.ndarray, "*draws"]],
    rng: np.random.Generator,
    resamples: int,
) -> Interval:
    """Computes the percentile interval of `statistic(*columns, axis=-1)` by resampling at least two
    units.

    A unit, such as a world, keeps its numbers of all columns, so that common variation does not
    widen the interval.
    """
    result = scipy.stats.bootstrap(
        tuple(columns),
        statistic,
        n_resamples=resamples,
        batch=max(1, LARGEST_DRAW // len(columns[0])),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=rng,
    )
    interval = result.confidence_interval
    return Interval(float(interval.low), float(interval.high))


def median_interval(values: Float[np.ndarray, " samples"]) -> Interval | None:
    """Returns the order statistics that enclose the median with at least 95 % confidence; None for
    fewer than 6.

    Holds for any distribution: for 10 samples the second to the ninth (97.9 %), because P(fewer
    than k of n on one side) is that of a fair coin.
    """
    ordered = np.sort(values)
    excluded = int(scipy.stats.binom.ppf(0.025, len(values), 0.5)) - 1
    if excluded < 0:
        return None
    return Interval(float(ordered[excluded]), float(ordered[len(values) - 1 - excluded]))
