"""predictions, targets -> the loss: L = mean_n (ŷ_n − y_n)²."""

from typing import Any

from jaxtyping import Float

from quatrain.models.sketch.config import SketchConfig

TERMS = ("error",)


def terms(config: SketchConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def compute(
    predictions: Float[Any, "seed batch"], targets: Float[Any, "seed batch"]
) -> dict[str, Float[Any, " seed"]]:
    """Computes the terms of L, whose sum is optimised."""
    return {"error": ((predictions - targets) ** 2).mean(-1)}
