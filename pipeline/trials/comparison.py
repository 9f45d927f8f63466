"""scores of two sides over the same base seeds -> by how much one is better."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quatrain.statistics import half_interval

# One for each base seed; None of one that has no score.
Scores = Sequence[float | None]


class Gain(NamedTuple):
    """Holds by how much a side is better, with half of the 95 % interval, in the unit of scores."""

    mean: float
    half: float

    @property
    def is_clear(self) -> bool:
        return self.mean > self.half

    def __str__(self) -> str:
        return f"{self.mean:.3g} ({self.mean - self.half:.3g} to {self.mean + self.half:.3g})"


def compare(scores: Scores, start: Scores, is_higher_better: bool) -> Gain | None:
    """Returns the mean of the differences seed by seed; None if a seed of one side has no score.

    The unit is a base seed, which both sides share: data, worlds and networks are drawn anew for
    each, and what both sides owe to them cancels out.
    """
    if None in (*scores, *start):
        return None
    new, old = np.array([scores, start], float)
    differences = new - old if is_higher_better else old - new
    return Gain(float(differences.mean()), float(half_interval(differences)))
