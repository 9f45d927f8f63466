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
    predicted: Float[Array, "seeds batch"],
    height: Float[Array, "seeds batch"],
    weights: Float[Array, "seeds features"],
) -> dict[str, Float[Array, " seeds"]]:
    """Computes the terms of L, not yet weighted."""
    errors = jnp.square(predicted - height)
    return {"error": errors.mean(-1), "penalty": jnp.square(weights).sum(-1)}
