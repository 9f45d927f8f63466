"""a distribution of plates, random numbers -> stiffness along x of each plate."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int8

LINEAR, EXPONENTIAL, USER = range(3)
# Stiffness at or below this value, or not finite, is replaced by 1.
FLOOR = 1e-6

# Of the plate with two ridges: their standard deviation, as a share of the plate's width, and the
# stiffness between and on them.
RIDGE_WIDTH = 1 / 12
GROUND = 0.4
RIDGE = 20.0

Range = tuple[float, float]


class PlateDistribution(NamedTuple):
    """Holds ranges of slopes per kind, of which each is equally likely, and the range of
    offsets.
    """

    linear: tuple[Range, ...]
    exponential: tuple[Range, ...]
    offset: Range


TRAINING = PlateDistribution(
    linear=((0.01, 0.1),), exponential=((0.002, 0.008),), offset=(0.5, 2.0)
)
# Plates flatter and steeper than any training plate.
OUTSIDE = PlateDistribution(
    linear=((0.002, 0.01), (0.1, 0.2)),
    exponential=((0.0005, 0.002), (0.008, 0.012)),
    offset=(0.5, 2.0),
)


class Plates(NamedTuple):
    """Holds plates. kind: LINEAR m·X + b, EXPONENTIAL b·exp(m·X), or USER, measured. intensity: at
    each pixel X.
    """

    kind: Int8[np.ndarray, " plate"]
    m: Float32[np.ndarray, " plate"]
    b: Float32[np.ndarray, " plate"]
    intensity: Float32[np.ndarray, "plate width"]


def make_plates(kind: np.ndarray, m: np.ndarray, b: np.ndarray, width: int) -> Plates:
    """Tabulates plates of a formula, so that one gather serves every kind."""
    slope = m.astype(np.float32)
    offset = b.astype(np.float32)
    exponent = slope.astype(np.float64)[:, None] * np.arange(width)
    scale = offset.astype(np.float64)[:, None]
    with np.errstate(over="ignore"):  # replaced below, as a value that is not finite
        table = np.where(kind[:, None] == LINEAR, exponent + scale, scale * np.exp(exponent))
        table = table.astype(np.float32)
    return Plates(
        kind=kind.astype(np.int8),
        m=slope,
        b=offset,
        intensity=np.where(np.isfinite(table) & (table > FLOOR), table, np.float32(1)),
    )


def sample_plates(
    distribution: PlateDistribution, count: int, width: int, rng: np.random.Generator
) -> Plates:
    """Draws plates, half of them linear on average."""
    kind = rng.integers(LINEAR, EXPONENTIAL + 1, count)
    slope = np.where(
        kind == LINEAR,
        _uniform(distribution.linear, count, rng),
        _uniform(distribution.exponential, count, rng),
    )
    return make_plates(kind, slope, rng.uniform(*distribution.offset, count), width)


def fixed_plate(width: int) -> Plates:
    """Returns the single plate of the original trainer: linear, slope 0.05, offset 1."""
    return make_plates(np.array([LINEAR]), np.array([0.05]), np.array([1.0]), width)


def two_ridges_plate(width: int) -> Plates:
    """Returns a plate with two stiff ridges on soft ground, at a third and two thirds of it.

    ln I(X) = ln ground + ln(ridge / ground) Σ_r exp(−(X − X_r)² / 2s²). On the soft ground even the
    longest throws are short, and throws of middle α hardly advance.
    """
    x = np.arange(width) / width
    distances = (x - np.array([[1 / 3], [2 / 3]])) / RIDGE_WIDTH
    ridges = np.exp(-0.5 * distances**2).sum(0)
    return user_plate((GROUND * (RIDGE / GROUND) ** ridges).astype(np.float32))


def user_plate(intensity: Float32[np.ndarray, " width"]) -> Plates:
    """Returns a measured plate of positive stiffness; m is its mean slope."""
    return Plates(
        kind=np.array([USER], np.int8),
        m=np.array([(intensity[-1] - intensity[0]) / max(len(intensity) - 1, 1)], np.float32),
        b=intensity[:1],
        intensity=intensity[None],
    )


def _uniform(ranges: tuple[Range, ...], count: int, rng: np.random.Generator) -> np.ndarray:
    low, high = np.array(ranges)[rng.integers(len(ranges), size=count)].T
    return rng.uniform(low, high)
