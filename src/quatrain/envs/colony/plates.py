"""a law of plates, random numbers -> stiffness along x of each plate."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int8

LINEAR, EXPONENTIAL, USER = range(3)
FLOOR = 1e-6
"""Stiffness that is not above it, or not finite, counts as 1."""

Range = tuple[float, float]


class PlateDistribution(NamedTuple):
    """Slopes and offsets of the plates of a kind; a slope lies in one of the ranges, each with equal chance."""

    linear: tuple[Range, ...]
    exponential: tuple[Range, ...]
    offset: Range


TRAINING = PlateDistribution(
    linear=((0.01, 0.1),), exponential=((0.002, 0.008),), offset=(0.5, 2.0)
)
OUTSIDE = PlateDistribution(
    linear=((0.002, 0.01), (0.1, 0.2)),
    exponential=((0.0005, 0.002), (0.008, 0.012)),
    offset=(0.5, 2.0),
)
"""Flatter and steeper than any training plate."""


class Plates(NamedTuple):
    """Plates as data. kind: LINEAR m·X + b, EXPONENTIAL b·exp(m·X), USER as given. intensity: at each pixel X."""

    kind: Int8[np.ndarray, " plate"]
    m: Float32[np.ndarray, " plate"]
    b: Float32[np.ndarray, " plate"]
    intensity: Float32[np.ndarray, "plate width"]


def make_plates(kind: np.ndarray, m: np.ndarray, b: np.ndarray, width: int) -> Plates:
    """Plates of a formula, tabulated; one gather then serves every kind."""
    slope, offset = (values.astype(np.float32).astype(np.float64)[:, None] for values in (m, b))
    pixel = np.arange(width)
    with np.errstate(over="ignore"):  # refused below, as a value that is not finite
        exponential = offset * np.exp(slope * pixel)
        table = np.where(kind[:, None] == LINEAR, slope * pixel + offset, exponential).astype(
            np.float32
        )
    valid = np.isfinite(table) & (table > FLOOR)
    columns = (kind.astype(np.int8), m.astype(np.float32), b.astype(np.float32))
    return Plates(*columns, np.where(valid, table, np.float32(1)))


def sample_plates(
    law: PlateDistribution, count: int, width: int, rng: np.random.Generator
) -> Plates:
    """Plates of a law, half of them linear on average."""
    kind = rng.integers(LINEAR, EXPONENTIAL + 1, count)
    slopes = [_within(ranges, count, rng) for ranges in (law.linear, law.exponential)]
    return make_plates(
        kind, np.where(kind == LINEAR, *slopes), rng.uniform(*law.offset, count), width
    )


def fixed_plate(width: int) -> Plates:
    """The one plate of the original trainer: linear, slope 0.05, offset 1."""
    return make_plates(np.array([LINEAR]), np.array([0.05]), np.array([1.0]), width)


def user_plate(intensity: Float32[np.ndarray, " width"]) -> Plates:
    """A measured plate, of positive numbers; its slope is the mean one."""
    slope = (intensity[-1] - intensity[0]) / max(len(intensity) - 1, 1)
    return Plates(
        np.array([USER], np.int8), np.array([slope], np.float32), intensity[:1], intensity[None]
    )


def _within(ranges: tuple[Range, ...], count: int, rng: np.random.Generator) -> np.ndarray:
    low, high = np.array(ranges)[rng.integers(len(ranges), size=count)].T
    return rng.uniform(low, high)
