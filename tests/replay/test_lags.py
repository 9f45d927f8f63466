"""The truncated geometric law of the lags, in NumPy and JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.replay.episodes.lags import lag_weights, lags, longest_lag


def law(max_horizon: int, discounts: tuple[float, ...]) -> np.ndarray:
    """P(k | max_horizon) for k = 1..max_horizon."""
    return np.array(
        [lag_weights(lag, max_horizon, discounts)[-1] for lag in range(1, max_horizon + 1)]
    )


def first_lag_whose_sum_exceeds(uniform: float, discount: float, horizon: int) -> int:
    weights = [discount ** (lag - 1) for lag in range(1, horizon + 1)]
    reached = 0.0
    for lag, weight in enumerate(weights, start=1):
        reached += weight / sum(weights)
        if uniform < reached:
            return lag
    return horizon


@pytest.mark.parametrize(
    ("discounts", "expected"),
    [
        ((0.5,), [4 / 7, 2 / 7, 1 / 7]),
        ((0.0,), [1, 0, 0]),
        ((1.0,), [1 / 3, 1 / 3, 1 / 3]),
        ((0.0, 0.5, 1.0), [40 / 63, 13 / 63, 10 / 63]),
    ],
)
def test_weights_are_the_mean_of_truncated_geometric_laws(discounts, expected):
    np.testing.assert_allclose(law(3, discounts), expected, atol=1e-15)


@pytest.mark.parametrize("discount", [0.2, 0.999, 1 - 1e-9, 1.0])
def test_weights_add_up_to_one_without_losing_digits_near_one(discount):
    assert law(777, (discount,)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("discount", [0.0, 0.2, 0.999, 1.0])
def test_lags_invert_the_summed_law(discount):
    rng = np.random.default_rng(3)
    uniforms, horizons = rng.random(400), rng.integers(1, 60, size=400)
    expected = [
        first_lag_whose_sum_exceeds(u, discount, m) for u, m in zip(uniforms, horizons, strict=True)
    ]
    np.testing.assert_array_equal(lags(uniforms, horizons, (discount,)), expected)


@pytest.mark.parametrize("discounts", [(0.0,), (0.999,), (1.0,), (0.9, 0.9999)])
def test_single_precision_in_jax_agrees_with_double_precision_but_for_rounding(discounts):
    rng = np.random.default_rng(1)
    uniforms = rng.random(20_000).astype(np.float32)
    horizons = rng.integers(1, 1500, 20_000).astype(np.int32)
    jitted = jax.jit(lags, static_argnums=2)
    single = np.asarray(jitted(jnp.asarray(uniforms), jnp.asarray(horizons), discounts))
    double = lags(uniforms.astype(np.float64), horizons, discounts)
    assert single.dtype == np.int32
    assert np.mean(single != double) < 2e-3
    # Close to 1, 23 bits of a uniform number leave a lag of thousands of steps uncertain by a few.
    np.testing.assert_allclose(single, double, rtol=0.01, atol=1)


@pytest.mark.parametrize("discounts", [(0.0,), (0.2,), (0.999,), (1.0,), (0.9, 0.9999)])
def test_the_smallest_and_largest_uniform_numbers_stay_within_every_horizon(discounts):
    horizons = np.arange(1, 1001, dtype=np.int32)
    for xp, largest in ((np, 1 - 2**-53), (jnp, 1 - 2**-24)):
        every_horizon = xp.asarray(horizons)
        assert (lags(xp.zeros(1000), every_horizon, discounts) == 1).all()
        longest = np.asarray(lags(xp.full(1000, largest), every_horizon, discounts))
        assert ((longest >= 1) & (longest <= horizons)).all()


def test_the_longest_lag_is_cut_where_the_law_has_no_weight_left():
    assert [longest_lag(1000, (0.2,)), longest_lag(7, (0.2,))] == [22, 7]
    assert [longest_lag(1000, (0.2, 0.9)), longest_lag(1000, (1.0,))] == [328, 1000]
    assert longest_lag(1000, (0.0,)) == 1
