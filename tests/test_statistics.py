"""Intervals that hold what they should, as often as they should."""

import itertools
import math

import numpy as np
import pytest

from quatrain.statistics import (
    aggregate_seeds,
    bootstrap_interval,
    format_mean,
    half_interval,
    interquartile_interval,
    interquartile_mean,
    median_interval,
)

LEARNERS = [
    {"share": 0.9, "bumps": 1.0},
    {"share": 0.8, "bumps": 2.0},
    {"share": 1.0, "bumps": 6.0},
    {"share": 0.9, "bumps": 3.0},
]


def test_scores_are_averaged_and_gated_ones_of_four_learners_get_an_interval():
    deviation = np.sqrt(0.02 / 3)
    half = 3.182446 * deviation / 2
    spread = {"share_sd": deviation, "share_low": 0.9 - half, "share_high": 0.9 + half}
    spread |= {"share_least": 0.8, "share_greatest": 1.0}
    expected = {"share": 0.9, "bumps": 3.0, "seeds": 4} | spread
    assert aggregate_seeds(LEARNERS, ["share"]) == pytest.approx(expected)
    assert half_interval(np.array([[4.0, 5.0]])).tolist() == [0, 0]
    shares = np.array([each["share"] for each in LEARNERS])
    assert format_mean(shares, 2) == "0.90 ± 0.13"


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_fewer_than_four_learners_have_no_interval(seeds: int):
    few = LEARNERS[:seeds]
    scores = aggregate_seeds(few, ["share"])
    extra = set() if seeds == 1 else {"share_sd", "share_least", "share_greatest"}
    assert scores.keys() == {"share", "bumps", "seeds"} | extra
    assert format_mean(np.array([each["share"] for each in few]), 2) == f"{scores['share']:.2f}"


def test_five_learners_have_an_interquartile_mean_and_a_failed_one_shows_in_the_mean():
    def scores(*values: float) -> dict[str, float]:
        return aggregate_seeds([{"success": float(value)} for value in values], ["success"])

    assert "success_iqm" not in scores(1, 1, 1, 0)
    failed = scores(1, 1, 1, 1, 0)
    assert (failed["success"], failed["success_least"], failed["success_iqm"]) == (0.8, 0, 1)
    ends = failed["success_iqm_low"], failed["success_iqm_high"]
    assert ends == pytest.approx((1 / 3, 1.0))  # two of three drawn: P(fails at least twice) = 0.26
    unknown = scores(1, 1, 1, 1, math.nan)
    gone = ("success", "success_iqm", "success_iqm_low", "success_iqm_high")
    assert np.isnan([unknown[name] for name in gone]).all()


def test_the_interquartile_mean_ignores_outliers():
    assert interquartile_mean(np.array([1e9, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -1e9])) == 4.5
    assert interquartile_mean(np.array([3.0, 5.0])) == 4.0
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 6.0, -5.0])) == 3.0


def test_the_interval_of_the_interquartile_mean_is_that_of_all_resamples():
    """Of 5 values there are 3125; a point of a curve is resampled with the others of its seed."""
    values = np.random.default_rng(3).exponential(size=5)
    means = [
        np.mean(sorted(values[place] for place in places)[1:4])
        for places in itertools.product(range(5), repeat=5)
    ]
    exact = np.quantile(means, (0.025, 0.975))
    ends = interquartile_interval(values)
    assert ends == pytest.approx(exact, rel=0.05)
    curves = np.stack([values, 3 * values + 1, np.full(5, 2.0), np.r_[values[:4], np.nan]], 1)
    along = interquartile_interval(curves)
    np.testing.assert_allclose(along[:, :3], np.stack([ends, 3 * ends + 1, [2.0, 2.0]], 1))
    assert np.isnan(along[:, 3]).all()


@pytest.mark.parametrize(("seeds", "least"), [(5, 0.86), (10, 0.9)])
def test_few_seeds_have_an_interval_that_is_a_little_too_narrow(seeds: int, least: float):
    rng = np.random.default_rng(0)
    intervals = [interquartile_interval(rng.normal(5.0, 2.0, seeds)) for _ in range(400)]
    assert least < np.mean([low <= 5.0 <= high for low, high in intervals]) < 0.96


def test_a_bootstrap_interval_has_its_nominal_coverage():
    rng = np.random.default_rng(0)
    coverage = 0
    for _ in range(200):
        low, high = bootstrap_interval((rng.normal(5.0, 2.0, 60),), np.mean, rng, 400)
        coverage += low <= 5.0 <= high
    assert 0.88 <= coverage / 200 <= 0.99


@pytest.mark.parametrize(
    ("samples", "low", "confidence"),
    [(6, 1, 0.96875), (9, 2, 0.9609375), (10, 2, 0.978516), (20, 6, 0.958611)],
)
def test_a_median_lies_between_order_statistics(samples: int, low: int, confidence: float):
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
