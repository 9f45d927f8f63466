"""What a learner yields while it learns, and what it raises when it can learn no more."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Progress(NamedTuple):
    """One yield of `train`: a learner that may become a checkpoint, and what happened since the last yield.

    step: counted as the model's `record_every` counts. metrics: name -> array whose first axis is time since the
    last yield; its length n divides the steps of the yield, entry i belongs to step start + (i+1)*steps/n.
    Each yield has the same names; a periodic evaluation that did not run has n = 0. Further axes become suffixes.
    """

    step: int
    learner: Any
    metrics: Mapping[str, np.ndarray]


class TrainingDiverged(ArithmeticError):
    """Something is not finite: says model, step, term and the key to change."""


def rows(progress: Progress, start: int) -> list[tuple[str, int, float]]:
    """(name, step, value) of every entry of a yield that began after step `start`; `cosine` of two becomes `cosine/0`, `cosine/1`."""
    out = []
    for name, values in progress.metrics.items():
        if not len(values):
            continue
        every = (progress.step - start) // len(values)
        for entry, value in enumerate(values):
            step = start + (entry + 1) * every
            for index in np.ndindex(np.shape(value)):
                suffix = "".join(f"/{i}" for i in index)
                out.append((name + suffix, step, float(value[index])))
    return out
