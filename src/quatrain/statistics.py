"""numbers of several learners or worlds -> one number, and how sure it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

LARGEST_DRAW = 10**7
"""Numbers of a column that a bootstrap draws at once."""


class Interval(NamedTuple):
    """Where a quantity lies with 95 % confidence."""

    low: float
    high: float


def aggregate_seeds(
    per_learner: Sequence[Mapping[str, float]], judged: Sequence[str]
) -> dict[str, float]:
    """Means over learners; for each judged metric of more than one learner also `_sd` and the 95 % `_low`, `_high`.

    A verdict takes the interval as noise (`baselines.judge`).
    """
    columns = {name: np.array([one[name] for one in per_learner]) for name in per_learner[0]}
    scores = {name: float(values.mean()) for name, values in columns.items()}
    if len(per_learner) > 1:
        for name in judged:
            half = float(half_interval(columns[name]))
            scores[f"{name}_sd"] = float(columns[name].std(ddof=1))
            scores |= {f"{name}_low": scores[name] - half, f"{name}_high": scores[name] + half}
    return scores


def half_interval(values: Float[np.ndarray, "samples *axes"]) -> Float[np.ndarray, "*axes"]:
    """Half the width of the 95 % interval of the mean over samples, t(0.975, n−1)·sd/√n; 0 of a single one."""
    samples = len(values)
    if samples == 1:
        return np.zeros(values.shape[1:])
    return np.asarray(
        scipy.stats.t.ppf(0.975, samples - 1) * values.std(0, ddof=1) / np.sqrt(samples)
    )


def interquartile_mean(values: Float[np.ndarray, " values"]) -> float:
    """Mean without the lowest and the highest quarter, as 'Deep RL at the Edge of the Statistical Precipice' has it."""
    return float(scipy.stats.trim_mean(values, 0.25))


def bootstrap_interval(
    columns: Sequence[Float[np.ndarray, " units"]],
    statistic: Callable[..., Float[np.ndarray, "*draws"]],
    rng: np.random.Generator,
    resamples: int,
) -> Interval:
    """Percentile interval of `statistic(*columns, axis=-1)` with units (worlds, say) drawn anew, at least two of them.

    A unit is drawn with its numbers of all columns, so that what moves them together does not widen the interval.
    """
    found = scipy.stats.bootstrap(
        tuple(columns),
        statistic,
        n_resamples=resamples,
        batch=max(1, LARGEST_DRAW // len(columns[0])),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=rng,
    )
    return Interval(float(found.confidence_interval.low), float(found.confidence_interval.high))


def median_interval(values: Float[np.ndarray, " samples"]) -> Interval | None:
    """Order statistics that hold the median with at least 95 % confidence, whatever the law; None of fewer than 6.

    Of 10 the second to the ninth (97.9 %): P(fewer than k of n on one side) is that of a fair coin.
    """
    ordered, count = np.sort(values), len(values)
    left_out = int(scipy.stats.binom.ppf(0.025, count, 0.5)) - 1
    return (
        None
        if left_out < 0
        else Interval(float(ordered[left_out]), float(ordered[count - 1 - left_out]))
    )
