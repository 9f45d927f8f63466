"""What a learner yields while it learns, and what it raises when it can learn no more."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped


class Progress(NamedTuple):
    """One yield of `train`: a learner that may become a checkpoint, and what happened since the last yield.

    step: counted as the model's `record_every` counts. metrics: name -> array whose first axis is time since the
    last yield; its length n divides the steps of the yield, entry i belongs to step start + (i+1)*steps/n.
    Each yield has the same names; a periodic evaluation that did not run has n = 0. Further axes become suffixes.
    """

    step: int
    learner: Any
    metrics: Mapping[str, Shaped[np.ndarray, "time *axes"]]


class TrainingDiverged(ArithmeticError):
    """Something is not finite: says model, step, term and the key to change."""


def rows(progress: Progress, start: int) -> list[tuple[str, int, float]]:
    """(name, step, value) of each entry of a yield that began after step `start`; columns become `name/0`, `name/1`.

    Raises:
        ValueError: the entries of a metric cannot be spread evenly over the steps.
    """
    found, steps = [], progress.step - start
    for name, values in progress.metrics.items():
        if len(values) and (steps < 1 or steps % len(values)):
            raise ValueError(f"{name} has {len(values)} entries for {steps} steps; the number must divide the steps")
        for entry, value in enumerate(values, start=1):
            step = start + entry * steps // len(values)
            for index in np.ndindex(np.shape(value)):
                suffix = "".join(f"/{i}" for i in index)
                found.append((name + suffix, step, float(value[index])))
    return found
