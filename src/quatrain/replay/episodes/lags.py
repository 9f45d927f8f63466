"""discounts, horizons -> lags between the two states of a pair (truncated geometric law).

A pair that starts with m transitions left in its trajectory has lag k in 1..m with probability
P(k | m) = (1-g) g^(k-1) / (1-g^m). With several discounts g each pair draws one of them uniformly.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Float64, Integer

AnyArray: TypeAlias = Any  # numpy.ndarray or jax.Array

NEGLIGIBLE = 1e-15


def lags(
    uniforms: Float[AnyArray, "batch"],
    horizons: Integer[AnyArray, "batch"],
    discounts: tuple[float, ...],
) -> Integer[AnyArray, "batch"]:
    """Computes lags (int32) by the inverse CDF, for NumPy (float64) and JAX (float32) arrays.

    Args:
        uniforms: numbers in [0, 1); with n discounts, the integer part of n u selects the discount
            and the fraction of n u is the uniform number of the lag: one draw serves both.
        horizons: transitions left after each start, at least 1.
        discounts: each in [0, 1], static under jit.
    """
    xp = uniforms.__array_namespace__()
    logs = [_log(discount) for discount in discounts]
    fraction = uniforms
    log_g = logs[0]
    if len(logs) > 1:
        scaled = uniforms * len(logs)
        choice = scaled.astype(xp.int32)
        fraction = scaled - choice
        log_g = xp.asarray(logs, dtype=uniforms.dtype)[choice]
    # 1 - (1-g^m) u would cancel as g -> 1.
    beyond = xp.log1p(fraction * xp.expm1(horizons * log_g)) / log_g
    # Rounding can give m + 1: u = 1 - 2^-24, g = 0.999, m = 50 in float32.
    return xp.minimum(1 + beyond.astype(xp.int32), horizons)


def lag_weights(
    lag: int, max_horizon: int, discounts: tuple[float, ...]
) -> Float64[np.ndarray, "horizons"]:
    """Computes P(lag | m) for each m = 0..max_horizon, mean over discounts; 0 where lag > m."""
    horizons = np.arange(max_horizon + 1)
    return np.where(
        lag <= horizons,
        np.mean([horizon_scale(horizons, g) * g ** (lag - 1) for g in discounts], axis=0),
        0.0,
    )


def horizon_scale(
    horizons: Integer[np.ndarray, "*any"], discount: float
) -> Float64[np.ndarray, "*any"]:
    """Computes the factor of P(k | m) that depends on m only, (1-g) / (1-g^m); 0 at m = 0."""
    log_g = _log(discount)
    scale = math.expm1(log_g) / np.expm1(np.maximum(horizons, 1) * log_g)
    return np.where(horizons > 0, scale, 0.0)


def longest_lag(max_horizon: int, discounts: tuple[float, ...]) -> int:
    """Returns the last lag whose weight g^(k-1) exceeds 1e-15 for the largest discount."""
    return min(max_horizon, math.ceil(math.log(NEGLIGIBLE) / _log(max(discounts))))


def _log(discount: float) -> float:
    """Computes ln g, kept finite and non-zero: the formulas then cover the limits g = 0 and g = 1.

    ln 0 := -10^4 leaves lag 1 only (a uniform number has 1-u >= 2^-53). With ln 1 := -2^-66 expm1
    and log1p return their argument, and the power of two cancels without rounding:
    k = 1 + floor(u m).
    """
    if discount == 0.0:
        return -1e4
    return min(math.log(discount), -(2.0**-66))
