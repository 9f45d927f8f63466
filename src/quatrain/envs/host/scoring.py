"""returns of a policy and of those without learning -> a score, whatever the size of rewards"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

# Returns whose deviation is smaller than this part of them are alike: sums of rewards are rounded.
ROUNDING = 1e-9


def score_of(
    returns: Float64[np.ndarray, " episode"], references: Mapping[str, Float64[np.ndarray, " _"]]
) -> float:
    """Computes sign(z) log2(1 + |z|), z = (mean(returns) - best mean of references) / sd(random).

    0 for the best policy without learning; one more doubles the distance from it. Learners of
    other seeds differ in proportion to what they have learned, which the logarithm makes the same
    at any distance. The unit is the deviation of the policy's own returns where those of random
    actions are all alike, and the distance itself (a score of 1) where both are.

    Args:
        returns: undiscounted, of one policy.
        references: those of policies without learning, among them `random`.
    """
    best = max(float(each.mean()) for each in references.values())
    distance = float(returns.mean()) - best
    units = (_deviation(references["random"]), _deviation(returns), abs(distance))
    unit = next((each for each in units if each > 0), 1.0)
    return float(np.copysign(np.log2(1 + abs(distance) / unit), distance))


def _deviation(returns: Float64[np.ndarray, " episode"]) -> float:
    deviation = float(returns.std(ddof=1))
    return deviation if deviation > ROUNDING * np.abs(returns).max() else 0.0
