"""observations and quantiles -> the value of each action at each quantile: an agent's init and apply.

'Implicit Quantile Networks for Distributional Reinforcement Learning' (ICML 2018), with dueling heads:

    h = relu(W_h x)   c = relu(W_c cos(π i τ)), i = 1..E   z = relu(W_f (h ⊙ c))   Z = v + a − mean_actions a
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, Shaped

from quatrain.models.iqn.config import Network

ACTIONS = 4
Params = Any
"""{layer: {kernel, bias}} of one agent; a noisy layer also has kernel_sigma and bias_sigma."""
Layer = Mapping[str, Array]
NOISY = ("feature", "advantage", "value")
SIGMA = 0.017
"""Of independent noise."""
SIGMA_FACTORISED = 0.5
"""Of factorised noise, over the root of the inputs."""


def init(network: Network, key: Key[Array, ""], inputs: int) -> Params:
    """Fresh parameters: W and b uniform in ±1/√inputs, in ±√(3/inputs) where independent noise is added."""
    sizes = {
        "hidden": (inputs, network.hidden),
        "cosine": (network.cosines, network.hidden),
        "feature": (network.hidden, network.hidden),
        "advantage": (network.hidden, ACTIONS),
    }
    if network.dueling:
        sizes["value"] = (network.hidden, 1)
    keys = jax.random.split(key, len(sizes))
    return {
        name: _init_layer(layer_key, size, network.noisy if name in NOISY else "none")
        for layer_key, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def _init_layer(key: Key[Array, ""], size: tuple[int, int], noise: str) -> Params:
    kernel_key, bias_key = jax.random.split(key)
    bound = (3 / size[0]) ** 0.5 if noise == "independent" else size[0] ** -0.5
    layer = {
        "kernel": jax.random.uniform(kernel_key, size, jnp.float32, -bound, bound),
        "bias": jax.random.uniform(bias_key, size[1:], jnp.float32, -bound, bound),
    }
    if noise == "none":
        return layer
    sigma = SIGMA if noise == "independent" else SIGMA_FACTORISED * size[0] ** -0.5
    return layer | {
        "kernel_sigma": jnp.full(size, sigma, jnp.float32),
        "bias_sigma": jnp.full(size[1:], sigma, jnp.float32),
    }


def embed(
    count: int, taus: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile cosine"]:
    """φ_i(τ) = cos(π i τ), i = 1..count (the paper counts from 0, whose cosine tells nothing)."""
    return jnp.cos(jnp.pi * jnp.arange(1, count + 1, dtype=jnp.float32) * taus[..., None])


def apply(
    network: Network,
    params: Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
    noise_key: Key[Array, ""] | None = None,
) -> Float[Array, "batch quantile action"]:
    """Z of each sample and quantile; `taus` of one row serve all samples.

    noise_key: one draw of the noisy layers, shared by samples and quantiles; None: without noise.
    """
    layers = (
        params
        if noise_key is None or network.noisy == "none"
        else with_noise(network, params, noise_key)
    )
    hidden = jax.nn.relu(_dense(layers["hidden"], stack.astype(jnp.float32)))
    cosine = jax.nn.relu(_dense(layers["cosine"], embed(network.cosines, taus)))
    feature = jax.nn.relu(_dense(layers["feature"], hidden[:, None] * cosine))
    advantage = _dense(layers["advantage"], feature)
    if not network.dueling:
        return advantage
    return combined(_dense(layers["value"], feature), advantage)


def combined(
    value: Float[Array, "*batch 1"], advantage: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """v + a − mean_actions a."""
    return value + advantage - advantage.mean(-1, keepdims=True)


def _dense(layer: Layer, inputs: Array) -> Array:
    return inputs @ layer["kernel"] + layer["bias"]


def with_noise(network: Network, params: Params, key: Key[Array, ""]) -> Params:
    """The same layers with one draw of their noise: μ + σ ⊙ ε ('Noisy Networks for Exploration', ICLR 2018)."""
    keys = jax.random.split(key, len(NOISY))
    drawn = {
        name: _noisy(params[name], layer_key, network.noisy == "factorised")
        for name, layer_key in zip(NOISY, keys, strict=True)
        if name in params
    }
    return {**params, **drawn}


def _noisy(layer: Layer, key: Key[Array, ""], factorised: bool) -> Layer:
    inputs, outputs = layer["kernel"].shape
    first_key, second_key = jax.random.split(key)
    if factorised:
        into, bias = (
            _rooted(jax.random.normal(first_key, (inputs,))),
            _rooted(jax.random.normal(second_key, (outputs,))),
        )
        kernel = jnp.outer(into, bias)
    else:
        kernel, bias = (
            jax.random.normal(first_key, (inputs, outputs)),
            jax.random.normal(second_key, (outputs,)),
        )
    return {
        "kernel": layer["kernel"] + layer["kernel_sigma"] * kernel,
        "bias": layer["bias"] + layer["bias_sigma"] * bias,
    }


def _rooted(normal: Float[Array, " units"]) -> Float[Array, " units"]:
    return jnp.sign(normal) * jnp.sqrt(jnp.abs(normal))
