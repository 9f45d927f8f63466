"""heights and weights -> the loss, term by term.

L = mean_b (ŷ_b − y_b)²  +  ridge · Σ_i w_i²
    error                   penalty
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from quatrain.models.tides.config import TidesConfig

TERMS = ("error", "penalty")


def terms(config: TidesConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def compute(
    predicted: Float[Array, " batch"],
    height: Float[Array, " batch"],
    weights: Float[Array, " features"],
) -> dict[str, Float[Array, ""]]:
    """Computes the terms of L, not yet weighted."""
    return {"error": jnp.square(predicted - height).mean(), "penalty": jnp.square(weights).sum()}
