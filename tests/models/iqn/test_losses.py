"""The quantile Huber loss: worked numbers, a triple loop, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.iqn import losses

TAUS = jnp.array([[0.25, 0.75]])
SELECTED_VALUES = jnp.array([[1.0, 3.0]])
TARGETS = jnp.array([[0.0, 2.0, 4.5]])


def loss(selected: jax.Array, targets: jax.Array, taus: jax.Array, kappa: float) -> jax.Array:
    return losses.quantile_huber(losses.td_errors(selected, targets), taus, kappa).mean()


@pytest.mark.parametrize(("kappa", "expected"), [(1.0, 0.916667), (2.0, 0.619792)])
def test_worked_loss(kappa: float, expected: float):
    assert float(loss(SELECTED_VALUES, TARGETS, TAUS, kappa)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kappa", [0.5, 3.0])
def test_loss_and_gradient_equal_a_triple_loop(kappa: float):
    batch, quantile, target_quantile = 3, 5, 7
    rng = np.random.default_rng(2)
    selected = rng.normal(0, 2, (batch, quantile))
    targets = rng.normal(0, 2, (batch, target_quantile))
    taus = rng.uniform(size=(batch, quantile))
    total, slope = 0.0, np.zeros((batch, quantile))
    for b in range(batch):
        for q in range(quantile):
            for p in range(target_quantile):
                u = targets[b, p] - selected[b, q]
                huber = u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                weight = abs(taus[b, q] - (u < 0))
                total += weight * huber / kappa / target_quantile / batch
                slope[b, q] -= weight * np.clip(u / kappa, -1, 1) / target_quantile / batch
    args = (jnp.float32(selected), jnp.float32(targets), jnp.float32(taus), kappa)
    value, gradient = jax.value_and_grad(loss)(*args)
    assert float(value) == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)


def test_the_best_action_is_that_of_the_greatest_mean_and_the_first_of_equals():
    spread = [[0.0, 5.0, 1.0, 2.0], [0.0, -5.0, 1.0, 2.0]]
    equal = [[3.0, 1.0, 3.0, 0.0], [3.0, 1.0, 3.0, 0.0]]
    assert losses.greedy_action(jnp.array([spread, equal])).tolist() == [3, 0]


def test_a_target_is_the_return_and_the_weighted_next_value():
    next_values = jnp.array([[4.0, 6.0], [9.0, 9.0]])
    result = losses.bootstrap_targets(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0]), next_values)
    np.testing.assert_array_equal(result, [[3, 4], [2, 2]])


def test_the_spread_is_between_the_outermost_quantiles():
    taus = jnp.array([[0.5, 0.9, 0.1], [0.2, 0.1, 0.3]])
    selected = jnp.array([[1.0, 7.0, 2.0], [4.0, 1.0, 2.5]])
    np.testing.assert_array_equal(losses.quantile_spread(selected, taus), [5.0, 1.5])
