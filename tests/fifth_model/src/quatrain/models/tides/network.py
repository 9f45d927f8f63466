"""time -> height, as a sum of harmonics."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quatrain.models.tides.config import Network, TidesConfig

Params = dict[str, Float[Array, "seeds features"]]


def init(config: TidesConfig, key: Array) -> Params:
    """Draws small random weights."""
    shape = (config.seeds, 1 + 2 * config.network.harmonics)
    return {"weights": 0.01 * jax.random.normal(key, shape)}


def features(config: Network, time: Float[Array, "*times"]) -> Float[Array, "*times features"]:
    """Computes [1, cos 2πt, .., cos 2πHt, sin 2πt, .., sin 2πHt]."""
    angles = 2 * jnp.pi * time[..., None] * jnp.arange(1, config.harmonics + 1)
    return jnp.concatenate([jnp.ones((*time.shape, 1)), jnp.cos(angles), jnp.sin(angles)], axis=-1)


def basis(
    config: Network, time: Float[np.ndarray, " times"]
) -> Float[np.ndarray, "times features"]:
    """Computes `features` as a numpy array."""
    return np.asarray(features(config, jnp.asarray(time, jnp.float32)))
