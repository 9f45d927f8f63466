"""Intervals that hold what they should, as often as they should."""

import math

import numpy as np
import pytest

from quatrain.statistics import (
    aggregate_seeds,
    bootstrap_interval,
    half_interval,
    interquartile_mean,
    median_interval,
)


def test_scores_are_averaged_and_gated_ones_of_several_learners_get_an_interval() -> None:
    learners = [
        {"share": 0.9, "bumps": 1.0},
        {"share": 0.8, "bumps": 2.0},
        {"share": 1.0, "bumps": 6.0},
    ]
    half = 4.302653 * 0.1 / np.sqrt(3)
    ends = {"share_low": 0.9 - half, "share_high": 0.9 + half}
    expected = {"share": 0.9, "bumps": 3.0, "share_sd": 0.1} | ends
    assert aggregate_seeds(learners, ["share"]) == pytest.approx(expected)
    assert aggregate_seeds(learners[:1], ["share"]) == learners[0]
    assert half_interval(np.array([[4.0, 5.0]])).tolist() == [0, 0]


def test_the_interquartile_mean_ignores_outliers() -> None:
    assert interquartile_mean(np.array([1e9, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -1e9])) == 4.5
    assert interquartile_mean(np.array([3.0, 5.0])) == 4.0


def test_a_bootstrap_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    coverage = 0
    for _ in range(200):
        low, high = bootstrap_interval((rng.normal(5.0, 2.0, 60),), np.mean, rng, 400)
        coverage += low <= 5.0 <= high
    assert 0.88 <= coverage / 200 <= 0.99


def test_common_variation_of_columns_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    luck = rng.normal(100.0, 20.0, 256)
    ours, theirs = luck + rng.normal(5.0, 1.0, 256), luck
    gain = bootstrap_interval(
        (ours, theirs), lambda a, b, axis: a.mean(axis) - b.mean(axis), rng, 1000
    )
    assert 4.5 < gain.low < 5.0 < gain.high < 5.5


@pytest.mark.parametrize(
    ("samples", "low", "confidence"),
    [(6, 1, 0.96875), (9, 2, 0.9609375), (10, 2, 0.978516), (20, 6, 0.958611)],
)
def test_a_median_lies_between_order_statistics(samples: int, low: int, confidence: float) -> None:
    """confidence: of a fair coin to show heads from `low` to samples - low times; leaving out one
    more is too few.
    """

    def coverage(left_out: int) -> float:
        heads = range(left_out, samples - left_out + 1)
        return sum(math.comb(samples, count) / 2**samples for count in heads)

    values = np.random.default_rng(4).permutation(np.arange(1.0, samples + 1))
    assert median_interval(values) == (low, samples + 1 - low)
    assert coverage(low) == pytest.approx(confidence, abs=1e-6)
    assert coverage(low) >= 0.95 > coverage(low + 1)


def test_up_to_five_samples_have_no_interval_of_the_median() -> None:
    assert [median_interval(np.arange(samples)) for samples in (1.0, 2.0, 5.0)] == [None] * 3
