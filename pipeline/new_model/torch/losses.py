"""predictions, targets -> the loss: L = mean_n (ŷ_n − y_n)²."""

from jaxtyping import Float
from torch import Tensor

from quatrain.models.sketch.config import SketchConfig

TERMS = ("error",)


def terms(config: SketchConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


def compute(
    predictions: Float[Tensor, "seed batch"], targets: Float[Tensor, "seed batch"]
) -> dict[str, Float[Tensor, " seed"]]:
    """Computes the terms of L, whose sum is optimised."""
    return {"error": (predictions - targets).square().mean(-1)}
