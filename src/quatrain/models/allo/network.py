"""inputs of states -> d features: the encoder's init and apply."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
from jax import Array
from jaxtyping import Float

from quatrain.frameworks.jax import over_devices, over_seeds
from quatrain.models.allo.config import AlloConfig, Network

# The encoder's arrays, nested as in flax.
Params = Any


class Encoder(nn.Module):
    """Applies `layers` times [Dense(hidden), relu], then a linear Dense(d).

    Weights are truncated LeCun-normal, biases zero.
    """

    network: Network

    @nn.compact
    def __call__(self, inputs: Float[Array, "*batch inputs"]) -> Float[Array, "*batch d"]:
        hidden = inputs
        for _ in range(self.network.layers):
            hidden = nn.relu(nn.Dense(self.network.hidden)(hidden))
        return nn.Dense(self.network.d)(hidden)


def init(network: Network, key: Array, inputs: Float[Array, "states inputs"]) -> Params:
    """Returns initial encoder parameters for inputs of this width."""
    return Encoder(network).init(key, inputs[:1])


def apply(
    network: Network, params: Params, inputs: Float[Array, "*batch inputs"]
) -> Float[Array, "*batch d"]:
    return Encoder(network).apply(params, inputs)  # type: ignore[return-value]


def of_learners(
    config: AlloConfig, params: Params, inputs: Float[Array, "rows inputs"]
) -> Float[Array, "seeds rows d"]:
    """Returns the features of rows, for each learner."""
    return over_devices(partial(_of_learners, config), config.seeds)(params, inputs)


@partial(jax.jit, static_argnums=0)
def _of_learners(config: AlloConfig, params: Params, inputs: Array) -> Array:
    encode = partial(apply, config.network)
    return over_seeds(encode, config.train.seed_parallelism)(params, inputs)
