"""The network of an agent: sizes, the embedding of quantiles, dueling heads, noise and
initialisation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.iqn import network
from quatrain.models.iqn.config import Network

SIZES: dict[str, Any] = {
    "frames": 5,
    "hidden": 250,
    "cosines": 64,
    "dueling": True,
    "noisy": "none",
}
SMALL: dict[str, Any] = SIZES | {"hidden": 11, "cosines": 6}
INPUTS = 13


def build(**sizes: Any) -> tuple[Network, network.Params]:
    selected = Network(**(SMALL | sizes))
    return selected, network.init(selected, jax.random.key(3), INPUTS)


def count(noisy: str) -> int:
    selected = Network(**(SIZES | {"noisy": noisy}))
    return sum(
        leaf.size for leaf in jax.tree.leaves(network.init(selected, jax.random.key(0), 625))
    )


def with_noise(selected: Network, params: network.Params, key: jax.Array) -> network.Params:
    """Adds the noise that `apply` draws from this key to the means of the noisy layers."""
    layers = dict(params)
    keys = jax.random.split(key, len(network.NOISY))
    for name, layer_key in zip(network.NOISY, keys, strict=True):
        layer = params[name]
        shape = layer["kernel"].shape
        kernel, bias = network.draw_noise(layer_key, shape, selected.noisy == "factorised")
        layers[name] = {
            "kernel": layer["kernel"] + layer["kernel_sigma"] * kernel,
            "bias": layer["bias"] + layer["bias_sigma"] * bias,
        }
    return layers


def stack_and_taus(rows: int = 3, quantiles: int = 5) -> tuple[jax.Array, jax.Array]:
    stack = jax.random.randint(jax.random.key(1), (rows, INPUTS), 0, 3, jnp.int8)
    return stack, jax.random.uniform(jax.random.key(2), (rows, quantiles))


@pytest.mark.parametrize(
    ("noisy", "expected"), [("none", 236_755), ("independent", 300_760), ("factorised", 300_760)]
)
def test_parameters_are_as_many_as_the_original_has(noisy: str, expected: int):
    assert count(noisy) == expected


def test_a_quantile_is_embedded_in_cosines_from_the_first_on():
    np.testing.assert_allclose(
        network.embed(4, jnp.float32(0.5)[None])[0], [0, -1, 0, 1], atol=1e-6
    )


def test_dueling_adds_advantages_around_their_mean_to_the_value():
    np.testing.assert_array_equal(
        network.combine_heads(jnp.array([2.0]), jnp.array([1.0, 2.0, 3.0, 6.0])), [0, 1, 2, 5]
    )


@pytest.mark.parametrize("dueling", [True, False])
def test_values_are_those_of_the_formula_written_out(dueling: bool):
    selected, params = build(dueling=dueling)
    stack, taus = stack_and_taus()
    result = np.asarray(network.apply(selected, params, stack, taus))
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for b in range(3):
        hidden = np.maximum(
            np.asarray(stack[b], float) @ layers["hidden"]["kernel"] + layers["hidden"]["bias"], 0
        )
        for q in range(5):
            cosines = np.array([np.cos(np.pi * i * float(taus[b, q])) for i in range(1, 7)])
            embedded = np.maximum(
                cosines @ layers["cosine"]["kernel"] + layers["cosine"]["bias"], 0
            )
            z = np.maximum(
                (hidden * embedded) @ layers["feature"]["kernel"] + layers["feature"]["bias"], 0
            )
            expected = z @ layers["advantage"]["kernel"] + layers["advantage"]["bias"]
            if dueling:
                value = z @ layers["value"]["kernel"] + layers["value"]["bias"]
                expected = value + expected - expected.mean()
            np.testing.assert_allclose(result[b, q], expected, atol=1e-5)


def test_without_dueling_there_is_no_value_head():
    assert "value" not in build(dueling=False)[1]


def test_one_row_of_quantiles_serves_all_samples():
    selected, params = build()
    stack, taus = stack_and_taus()
    shared = network.apply(selected, params, stack, taus[:1])
    repeated = network.apply(selected, params, stack, jnp.repeat(taus[:1], 3, axis=0))
    np.testing.assert_allclose(shared, repeated, atol=1e-6)


@pytest.mark.parametrize(
    ("noisy", "bound"), [("none", 1.0), ("factorised", 1.0), ("independent", 3**0.5)]
)
def test_weights_begin_uniform_within_their_bound(noisy: str, bound: float):
    kernel = np.asarray(build(noisy=noisy, hidden=200)[1]["feature"]["kernel"]) * 200**0.5
    assert bound * 0.99 < np.abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / 3**0.5, rel=0.02)


@pytest.mark.parametrize("noisy", ["independent", "factorised"])
def test_noise_moves_values_and_is_shared_by_samples_and_quantiles(noisy: str):
    selected, params = build(noisy=noisy)
    stack, taus = stack_and_taus()
    key = jax.random.key(8)
    drawn = network.apply(selected, params, stack, taus, key)
    layers = with_noise(selected, params, key)
    quiet = selected.model_copy(update={"noisy": "none"})
    np.testing.assert_array_equal(drawn, network.apply(quiet, layers, stack, taus))
    assert not np.allclose(drawn, network.apply(selected, params, stack, taus))
    assert not np.allclose(drawn, network.apply(selected, params, stack, taus, jax.random.key(9)))


def test_factorised_noise_is_an_outer_product_and_independent_noise_is_not():
    for noisy, rank in (("factorised", 1), ("independent", 11)):
        selected, params = build(noisy=noisy)
        layer = params["feature"]
        noisy_layer = with_noise(selected, params, jax.random.key(4))["feature"]
        noise = noisy_layer["kernel"] - layer["kernel"]
        assert np.linalg.matrix_rank(np.asarray(noise / layer["kernel_sigma"]), tol=1e-3) == rank


def test_without_noise_nothing_is_drawn():
    selected, params = build()
    stack, taus = stack_and_taus()
    program = jax.make_jaxpr(lambda key: network.apply(selected, params, stack, taus, key))(
        jax.random.key(0)
    )
    assert "random_bits" not in str(program)
    assert "threefry" not in str(program)
