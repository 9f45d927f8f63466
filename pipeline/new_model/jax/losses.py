"""predictions, targets -> the loss: L = mean_n (ŷ_n − y_n)²."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from quatrain.models.sketch.config import SketchConfig

TERMS = ("error",)


def terms(config: SketchConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def compute(
    predictions: Float[Array, "seed batch"], targets: Float[Array, "seed batch"]
) -> dict[str, Float[Array, " seed"]]:
    """Computes the terms of L, whose sum is optimised."""
    return {"error": jnp.square(predictions - targets).mean(-1)}
