"""inputs of states -> d features: the encoder's init and apply."""

from typing import Any

import flax.linen as nn
from jax import Array
from jaxtyping import Float

from quatrain.models.allo.config import Network

Params = Any
"""The encoder's arrays, as flax nests them."""


class Encoder(nn.Module):
    """`layers` times [Dense(hidden), relu], then Dense(d), linear; truncated LeCun-normal weights, zero biases."""

    network: Network

    @nn.compact
    def __call__(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows d"]:
        hidden = inputs
        for _ in range(self.network.layers):
            hidden = nn.relu(nn.Dense(self.network.hidden)(hidden))
        return nn.Dense(self.network.d)(hidden)


def init(network: Network, key: Array, inputs: Float[Array, "rows inputs"]) -> Params:
    """Fresh encoder parameters for inputs of this width."""
    return Encoder(network).init(key, inputs[:1])


def apply(
    network: Network, params: Params, inputs: Float[Array, "*rows inputs"]
) -> Float[Array, "*rows d"]:
    """Features of each row."""
    return Encoder(network).apply(params, inputs)  # type: ignore[return-value]
