"""Plates: what a distribution may draw, what a formula gives, and where no cell could stand."""

import math

import numpy as np
import pytest

from quatrain.envs.colony import plates
from quatrain.envs.colony.plates import (
    EXPONENTIAL,
    LINEAR,
    OUTSIDE,
    TRAINING,
    USER,
    PlateDistribution,
    Plates,
)

WIDTH, COUNT = 61, 2000


def drawn(distribution: PlateDistribution, seed: int = 0, count: int = COUNT) -> Plates:
    return plates.sample_plates(distribution, count, WIDTH, np.random.default_rng(seed))


@pytest.mark.parametrize("distribution", [TRAINING, OUTSIDE])
def test_drawn_plates_fill_the_ranges_of_the_distribution(distribution: PlateDistribution):
    result = drawn(distribution)
    assert result.kind.mean() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(COUNT))
    for kind, ranges in ((LINEAR, distribution.linear), (EXPONENTIAL, distribution.exponential)):
        slopes, inside = np.sort(result.m[result.kind == kind]), 0
        for low, high in ranges:
            here = slopes[(slopes >= np.float32(low)) & (slopes <= np.float32(high))]
            slack = 4.5 * math.sqrt(len(slopes)) / 2
            assert len(here) == pytest.approx(len(slopes) / len(ranges), abs=slack)
            np.testing.assert_allclose([here[0], here[-1]], [low, high], atol=0.02 * (high - low))
            assert here.mean() == pytest.approx((low + high) / 2, abs=0.05 * (high - low))
            inside += len(here)
        assert inside == len(slopes)
    assert 0.5 <= result.b.min() < 0.51
    assert 1.99 < result.b.max() <= 2


@pytest.mark.parametrize(
    ("kind", "m", "b", "expected"),
    [
        (LINEAR, -0.5, 1.0, [1.0, 0.5, 1.0, 1.0]),
        (LINEAR, 1e-6, 0.0, [1.0, 1.0, 2e-6, 3e-6]),
        (LINEAR, 0.0, -3.0, [1.0, 1.0, 1.0, 1.0]),
        (EXPONENTIAL, 80.0, 1.0, [1.0, math.exp(80), 1.0, 1.0]),
        (EXPONENTIAL, 800.0, 2.0, [2.0, 1.0, 1.0, 1.0]),
        (EXPONENTIAL, -10.0, 3.0, [3.0, 3 * math.exp(-10), 1.0, 1.0]),
    ],
)
def test_stiffness_up_to_a_millionth_or_not_finite_becomes_one(
    kind: int, m: float, b: float, expected: list[float]
):
    plates_made = plates.make_plates(np.array([kind]), np.array([m]), np.array([b]), 4)
    np.testing.assert_allclose(plates_made.intensity, [expected], rtol=1e-5)


def test_the_fixed_plate_is_the_one_of_the_original_trainer():
    fixed = plates.fixed_plate(WIDTH)
    assert [column.tolist() for column in fixed[:3]] == [[LINEAR], [np.float32(0.05)], [1]]
    np.testing.assert_allclose(fixed.intensity[0], 1 + 0.05 * np.arange(WIDTH), rtol=1e-6)


def test_two_ridges_stand_out_of_ground_on_which_throws_are_short():
    ridges = plates.two_ridges_plate(600)
    table = ridges.intensity[0]
    np.testing.assert_allclose(table[[200, 400]], 20, rtol=1e-2)
    np.testing.assert_allclose(table[[0, 599]], 0.4, rtol=1e-2)
    assert table[300] == pytest.approx(0.4 * 50 ** (2 * math.exp(-2)), rel=1e-2)
    tops = (np.diff(np.sign(np.diff(table))) < 0).sum()
    assert (tops, ridges.kind.tolist()) == (2, [USER])
