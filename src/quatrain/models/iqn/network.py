"""observations, quantiles -> the value of each action at each quantile: init and apply

'Implicit Quantile Networks for Distributional Reinforcement Learning' (ICML 2018), dueling heads:

    h = relu(W_h x)   c = relu(W_c cos(π i τ)), i = 1..E   z = relu(W_f (h ⊙ c))
    Z = v + a − mean_actions a

The modules take their random keys as arguments, for flax derives its own from the layers' names: a
renamed layer would then start from other weights.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, Shaped

from quatrain.models.iqn.config import Network

# Actions in iqn's own world.
ACTIONS = 4
# {layer: {kernel, bias}} of one agent; a noisy layer also has kernel_sigma and bias_sigma.
Params = Any
LAYERS = ("hidden", "cosine", "feature", "advantage", "value")
NOISY = LAYERS[2:]
# Initial scale of independent noise.
SIGMA = 0.017
# Initial scale of factorised noise, times the root of the number of inputs.
SIGMA_FACTORISED = 0.5
# Layer -> key.
LayerKeys = Mapping[str, Key[Array, ""]]


class NoisyDense(nn.Module):
    """Computes x W + b; with a noise key W and b are μ + σ ⊙ ε ('Noisy Networks', ICLR 2018).

    W and b start uniform in ±1/√inputs, or in ±√(3/inputs) with independent noise.
    """

    features: int
    noise: str = "none"

    @nn.compact
    def __call__(self, inputs: Array, init_keys: LayerKeys, noise_keys: LayerKeys) -> Array:
        shape = (inputs.shape[-1], self.features)
        independent = self.noise == "independent"
        bound = (3 / shape[0]) ** 0.5 if independent else shape[0] ** -0.5
        draw = partial(_uniform, init_key=init_keys.get(str(self.name)), bound=bound)
        kernel = self.param("kernel", partial(draw, part=0), shape)
        bias = self.param("bias", partial(draw, part=1), shape[1:])
        if self.noise != "none":
            sigma = SIGMA if independent else SIGMA_FACTORISED * shape[0] ** -0.5
            initial = nn.initializers.constant(sigma, jnp.float32)
            kernel_sigma = self.param("kernel_sigma", initial, shape)
            bias_sigma = self.param("bias_sigma", initial, shape[1:])
            if self.name in noise_keys:
                noise = draw_noise(noise_keys[str(self.name)], shape, not independent)
                kernel = kernel + kernel_sigma * noise[0]
                bias = bias + bias_sigma * noise[1]
        return inputs @ kernel + bias


class QuantileNetwork(nn.Module):
    network: Network
    actions: int

    @nn.compact
    def __call__(
        self, stack: Array, taus: Array, init_keys: LayerKeys, noise_keys: LayerKeys
    ) -> Array:
        def dense(name: str, inputs: Array, features: int) -> Array:
            noise = self.network.noisy if name in NOISY else "none"
            return NoisyDense(features, noise, name=name)(inputs, init_keys, noise_keys)

        units = self.network.hidden
        hidden = nn.relu(dense("hidden", stack.astype(jnp.float32), units))
        cosine = nn.relu(dense("cosine", embed(self.network.cosines, taus), units))
        feature = nn.relu(dense("feature", hidden[:, None] * cosine, units))
        advantage = dense("advantage", feature, self.actions)
        if not self.network.dueling:
            return advantage
        return combine_heads(dense("value", feature, 1), advantage)


def init(network: Network, key: Key[Array, ""], inputs: int, actions: int = ACTIONS) -> Params:
    """Draws fresh parameters of one agent, {layer: {kernel, bias}}, for stacks of this width."""
    layers = LAYERS if network.dueling else LAYERS[:-1]
    keys = dict(zip(layers, jax.random.split(key, len(layers)), strict=True))
    variables = QuantileNetwork(network, actions).init(
        key,
        stack=jnp.zeros((1, inputs), jnp.int8),
        taus=jnp.zeros((1, 1)),
        init_keys=keys,
        noise_keys={},
    )
    return variables["params"]


def init_agents(
    network: Network, keys: Key[Array, " agent"], inputs: int, actions: int = ACTIONS
) -> Params:
    """Draws fresh parameters of agents with these keys; leaves begin with axis agent."""
    return jax.vmap(lambda key: init(network, key, inputs, actions))(keys)


def apply(
    network: Network,
    params: Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
    noise_key: Key[Array, ""] | None = None,
) -> Float[Array, "batch quantile action"]:
    """Computes Z of each sample and quantile; `taus` with one row serve all samples.

    noise_key: draws the noise once for all samples and quantiles; None: no noise.
    """
    noise_keys: LayerKeys = {}
    if noise_key is not None and network.noisy != "none":
        noise_keys = dict(zip(NOISY, jax.random.split(noise_key, len(NOISY)), strict=True))
    return QuantileNetwork(network, count_actions(params)).apply(  # type: ignore[return-value]
        {"params": params}, stack, taus, init_keys={}, noise_keys=noise_keys
    )


def count_actions(params: Params) -> int:
    """Returns the number of actions of which these parameters, of any axes before, give values."""
    return int(params["advantage"]["bias"].shape[-1])


def embed(
    count: int, taus: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile cosine"]:
    """Computes φ_i(τ) = cos(π i τ), i = 1..count (the paper starts at 0, a constant)."""
    return jnp.cos(jnp.pi * jnp.arange(1, count + 1, dtype=jnp.float32) * taus[..., None])


def combine_heads(
    value: Float[Array, "*batch 1"], advantage: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """Computes v + a − mean_actions a."""
    return value + advantage - advantage.mean(-1, keepdims=True)


def draw_noise(
    key: Key[Array, ""], shape: tuple[int, int], factorised: bool
) -> tuple[Array, Array]:
    """Draws ε of a kernel of this shape and of its bias.

    Independent noise is standard normal. Factorised noise of the kernel is the outer product of the
    inputs' and the outputs' noise, and the bias has the outputs' noise, each sign(n) √|n|.
    """
    kernel_key, output_key = jax.random.split(key)
    output_noise = jax.random.normal(output_key, shape[1:])
    if not factorised:
        return jax.random.normal(kernel_key, shape), output_noise
    input_noise = _signed_root(jax.random.normal(kernel_key, shape[:1]))
    output_noise = _signed_root(output_noise)
    return jnp.outer(input_noise, output_noise), output_noise


def _signed_root(normal: Float[Array, " unit"]) -> Float[Array, " unit"]:
    return jnp.sign(normal) * jnp.sqrt(jnp.abs(normal))


def _uniform(
    flax_key: Array, shape: tuple[int, ...], init_key: Array | None, part: int, bound: float
) -> Array:
    # Flax asks for the shape also when it applies, then without an init key.
    keys = jax.random.split(flax_key if init_key is None else init_key)
    return jax.random.uniform(keys[part], shape, jnp.float32, -bound, bound)
