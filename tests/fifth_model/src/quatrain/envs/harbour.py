"""time of day -> the true height of the water in a harbour."""

import numpy as np
from jaxtyping import Float

WAVES = ((1.0, 2, 0.3), (0.4, 1, 1.1), (0.15, 4, 2.0))
"""Height in metres, waves a day, phase."""


def height(time: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
    """Computes metres above the mean; time in days."""
    return sum(
        (a * np.cos(2 * np.pi * n * time - phase) for a, n, phase in WAVES), np.zeros(time.shape)
    )
