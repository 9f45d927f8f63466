"""discounts, horizons -> lags: how many steps ahead a pair looks (the truncated geometric law)

A pair that starts with m transitions left in its trajectory looks k in 1..m steps ahead with probability
P(k | m) = (1-g) g^(k-1) / (1-g^m). With several discounts g each pair draws one of them uniformly.
"""

import math
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Float64, Int

AnyArray: TypeAlias = Any  # numpy.ndarray or jax.Array

NEGLIGIBLE = 1e-15
LONGEST_MEAN = 2.0**40
"""Of the exponential numbers below: for a discount of 1 the law is then even up to 1e-12 m, and int64 holds the lag."""
SHORT_MEAN = 2.0**25
"""With this one int32 does, for NumPy draws no exponential number above 64."""


def lags(
    uniforms: Float[AnyArray, "batch"],
    horizons: Int[AnyArray, "batch"],
    discounts: tuple[float, ...],
) -> Int[AnyArray, "batch"]:
    """Lags (int32) by the inverse CDF; NumPy (float64) and JAX (float32) arrays go through the same formula.

    Args:
        uniforms: numbers in [0, 1); with n discounts, the whole part of n u picks the discount and the rest
            of n u is the uniform number of the lag, so that one draw serves both.
        horizons: transitions left after each start, at least 1.
        discounts: each in [0, 1], static under jit.
    """
    xp = uniforms.__array_namespace__()
    logs = [_log(discount) for discount in discounts]
    if len(logs) == 1:
        fraction, log_g = uniforms, logs[0]
    else:
        scaled = uniforms * len(logs)
        choice = scaled.astype(xp.int32)
        fraction, log_g = scaled - choice, xp.asarray(logs, dtype=uniforms.dtype)[choice]
    # 1 - (1-g^m) u would cancel as g -> 1.
    beyond = xp.log1p(fraction * xp.expm1(horizons * log_g)) / log_g
    # Rounding can give m + 1: u = 1 - 2^-24, g = 0.999, m = 50 in float32.
    return xp.minimum(1 + beyond.astype(xp.int32), horizons)


def draw_lags(
    rng: np.random.Generator, horizons: Int[np.ndarray, "batch"], discounts: tuple[float, ...]
) -> Int[np.ndarray, "batch"]:
    """Lags of the same law on the host, in a fraction of the time of the inverse CDF.

    The whole part of an exponential number of mean -1 / ln g is j with probability (1-g) g^j. Modulo m the numbers
    j = k-1, k-1+m, k-1+2m, ... fall together, and their sum is P(k | m).
    """
    means = _means(discounts)
    exponentials = rng.standard_exponential(len(horizons))
    exponentials *= (
        means[0]
        if len(means) == 1
        else np.array(means)[rng.integers(len(means), size=len(horizons))]
    )
    drawn = exponentials.astype(np.int32 if max(means) <= SHORT_MEAN else np.int64) % horizons
    drawn += 1
    return drawn


@cache
def _means(discounts: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(min(-1.0 / _log(discount), LONGEST_MEAN) for discount in discounts)


def lag_weights(
    lag: int, max_horizon: int, discounts: tuple[float, ...]
) -> Float64[np.ndarray, "horizons"]:
    """P(lag | m) for every horizon m = 0..max_horizon, averaged over the discounts; 0 where lag > m."""
    horizons = np.arange(max_horizon + 1)
    weights = [horizon_scale(horizons, g) * g ** (lag - 1) for g in discounts]
    return np.where(lag <= horizons, np.mean(weights, axis=0), 0.0)


def horizon_scale(
    horizons: Int[np.ndarray, "*any"], discount: float
) -> Float64[np.ndarray, "*any"]:
    """The factor of P(k | m) that depends on m alone, (1-g) / (1-g^m); 0 at m = 0, where no pair starts."""
    log_g = _log(discount)
    return np.where(
        horizons > 0, math.expm1(log_g) / np.expm1(np.maximum(horizons, 1) * log_g), 0.0
    )


def longest_lag(max_horizon: int, discounts: tuple[float, ...]) -> int:
    """The last lag whose weight g^(k-1) is not negligible (1e-15) for the largest discount."""
    return min(max_horizon, math.ceil(math.log(NEGLIGIBLE) / _log(max(discounts))))


def _log(discount: float) -> float:
    """ln g, kept finite and non-zero so that the formulas above also give the limits g = 0 and g = 1.

    ln 0 := -10^4 leaves lag 1 only (a uniform number has 1-u >= 2^-53). With ln 1 := -2^-66 expm1 and log1p
    return their argument and the power of two cancels without rounding: k = 1 + floor(u m).
    """
    if discount == 0.0:
        return -1e4
    return min(math.log(discount), -(2.0**-66))
