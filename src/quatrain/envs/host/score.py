"""returns of a policy and of those without learning -> `score`, which has no unit"""

import math
from collections.abc import Mapping

# Scores that say where the scale of `score` begins, and how long its unit is.
ORIGIN, UNIT = "score_origin", "score_unit"


def score(return_mean: float, origin: float, unit: float) -> float:
    """Computes sign(z) log2(1 + |z|), z = (return_mean - origin) / unit."""
    distance = return_mean - origin
    return math.copysign(math.log2(1 + abs(distance) / unit), distance)


def on_scale_of(
    other: Mapping[str, float | None], scores: Mapping[str, float | None]
) -> Mapping[str, float | None]:
    """Returns scores with `score` measured on the scale of another training: each estimates its own
    by as many episodes as its length allows.
    """
    origin, unit, mean = other.get(ORIGIN), other.get(UNIT), scores.get("return_mean")
    if ORIGIN not in scores or origin is None or unit is None or mean is None:
        return scores
    return {**scores, "score": score(mean, origin, unit)}
