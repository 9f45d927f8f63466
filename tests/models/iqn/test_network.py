"""The network of an agent: sizes, the formula, noise and initialisation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.iqn import network
from quatrain.models.iqn.config import Network

SIZES: dict[str, Any] = {"frames": 5, "hidden": 11, "cosines": 6, "dueling": True, "noisy": "none"}
INPUTS = 13
apply = jax.jit(network.apply, static_argnums=0)


def build(**sizes: Any) -> tuple[Network, network.Params]:
    """Any weights."""
    selected, rng = Network(**(SIZES | sizes)), np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: network.init(selected, jax.random.key(3), INPUTS, 4))
    return selected, jax.tree.map(lambda leaf: np.float32(rng.normal(size=leaf.shape) / 3), shapes)


def stack_and_taus() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(1)
    stack = rng.integers(0, 3, (3, INPUTS)).astype(np.int8)
    return jnp.asarray(stack), jnp.asarray(rng.uniform(size=(3, 5)), jnp.float32)


@pytest.mark.parametrize(("noisy", "expected"), [("none", 236_755), ("independent", 300_760)])
def test_parameters_are_as_many_as_the_original_has(noisy: str, expected: int):
    selected = Network(**(SIZES | {"hidden": 250, "cosines": 64, "noisy": noisy}))
    shapes = jax.eval_shape(lambda: network.init(selected, jax.random.key(0), 625, 4))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == expected


def test_a_quantile_is_embedded_in_cosines_from_the_first_on():
    embedded = network.embed(4, jnp.float32(0.5)[None])[0]
    np.testing.assert_allclose(embedded, [0, -1, 0, 1], atol=1e-6)


@pytest.mark.parametrize("dueling", [True, False])
def test_values_are_those_of_the_formula_written_out(dueling: bool):
    selected, params = build(dueling=dueling)
    assert ("value" in params) == dueling
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    stack, taus = (np.asarray(values, np.float64) for values in stack_and_taus())

    def dense(name: str, inputs: np.ndarray) -> np.ndarray:
        return inputs @ layers[name]["kernel"] + layers[name]["bias"]

    result = np.asarray(apply(selected, params, *stack_and_taus()))
    for b in range(3):
        hidden = np.maximum(dense("hidden", stack[b]), 0)
        for q in range(5):
            cosines = np.array([np.cos(np.pi * i * taus[b, q]) for i in range(1, 7)])
            z = np.maximum(dense("feature", hidden * np.maximum(dense("cosine", cosines), 0)), 0)
            expected = dense("advantage", z)
            if dueling:
                expected = dense("value", z) + expected - expected.mean()
            np.testing.assert_allclose(result[b, q], expected, atol=1e-5)


def test_noisy_weights_begin_uniform_within_their_bound():
    selected = Network(**(SIZES | {"noisy": "independent"}))
    init = jax.jit(lambda: network.init(selected, jax.random.key(3), INPUTS, 4))
    params, bound = jax.device_get(init()), 3**0.5
    kernel = params["hidden"]["kernel"] * INPUTS**0.5
    assert 0.95 < np.abs(kernel).max() <= 1  # noise is on later layers alone
    kernel = params["feature"]["kernel"] * 11**0.5
    assert bound * 0.95 < np.abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / 3**0.5, rel=0.1)
    np.testing.assert_allclose(params["feature"]["kernel_sigma"], 0.017, rtol=1e-6)


def test_noise_moves_values_and_is_shared_by_samples_and_quantiles():
    selected, params = build(noisy="independent")
    stack, taus = stack_and_taus()
    layers, keys = dict(params), jax.random.split(jax.random.key(8), len(network.NOISY))
    for name, key in zip(network.NOISY, keys, strict=True):
        columns = ("kernel", "bias", "kernel_sigma", "bias_sigma")
        kernel, bias, kernel_sigma, bias_sigma = (params[name][column] for column in columns)
        kernel_key, bias_key = jax.random.split(key)
        layers[name] = {
            "kernel": kernel + kernel_sigma * jax.random.normal(kernel_key, kernel.shape),
            "bias": bias + bias_sigma * jax.random.normal(bias_key, bias.shape),
        }
    drawn = apply(selected, params, stack, taus, jax.random.key(8))
    quiet = selected.model_copy(update={"noisy": "none"})
    np.testing.assert_allclose(drawn, apply(quiet, layers, stack, taus), atol=1e-6)
    assert not np.allclose(drawn, apply(selected, params, stack, taus))
    assert not np.allclose(drawn, apply(selected, params, stack, taus, jax.random.key(9)))


def test_without_noise_a_key_changes_nothing():
    selected, params = build()
    quiet = apply(selected, params, *stack_and_taus())
    result = apply(selected, params, *stack_and_taus(), jax.random.key(0))
    np.testing.assert_array_equal(result, quiet)
