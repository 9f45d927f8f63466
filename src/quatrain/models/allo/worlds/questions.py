"""A request for features, as a world has read it."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32


class Questions(NamedTuple):
    """Holds inputs of the encoder, which rows of its outputs answer, and answers without it."""

    inputs: Float32[np.ndarray, "rows inputs"]
    rows: Any
    answers: dict[str, np.ndarray]
