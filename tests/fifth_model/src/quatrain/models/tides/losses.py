"""heights -> the loss: L = mean_b (ŷ_b − y_b)²."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from quatrain.models.tides.config import TidesConfig

TERMS = ("error",)


def terms(config: TidesConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def compute(
    predicted: Float[Array, "seeds batch"], height: Float[Array, "seeds batch"]
) -> dict[str, Float[Array, " seeds"]]:
    """Computes the terms of L, not yet weighted."""
    return {"error": jnp.square(predicted - height).mean(-1)}
