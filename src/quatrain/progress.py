"""What a learner yields while it learns, and what it raises when it can learn no more."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from quatrain.errors import TrainingDiverged as TrainingDiverged


class Progress(NamedTuple):
    """One yield of `train`: a learner that may become a checkpoint, and what happened since the last yield.

    step: counted as the model's `record_every` counts. state: stays as it is while the next one is made (no buffer
    of it is given away), for it is what remains where the next one diverges. metrics: name -> array whose first axis
    is time since the last yield; its length n divides the steps of the yield, entry i belongs to step
    start + (i+1)*steps/n. Each yield has the same names; a periodic evaluation that did not run has n = 0. Further
    axes become suffixes.
    """

    step: int
    state: Any
    metrics: Mapping[str, Shaped[np.ndarray, "time *axes"]]


Row = tuple[str, int, float]
"""Name of a metric with its suffixes, step, value."""
History = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Name of a metric with its suffixes -> its steps and its values."""


def by_seed(
    metrics: Mapping[str, Shaped[np.ndarray, "_ _ ..."]],
) -> dict[str, Shaped[np.ndarray, "_ ..."]]:
    """Metrics (time, learners, *axes) as a yield has them: each under the same name, however many learners there are.

    `name` is the mean over learners; of several, `name/seed` keeps all of them: rows `cosine/3`, `cosine/seed/1/3`.
    """
    found: dict[str, np.ndarray] = {}
    for name, values in metrics.items():
        if values.shape[1] == 1:
            found[name] = values[:, 0]
        else:
            found |= {name: values.mean(1, dtype=np.float64), f"{name}/seed": values}
    return found


def rows(progress: Progress, start: int) -> list[Row]:
    """(name, step, value) of each entry of a yield that began after step `start`; columns become `name/0`, `name/1`.

    Raises:
        ValueError: the entries of a metric cannot be spread evenly over the steps.
    """
    found: list[Row] = []
    steps = progress.step - start
    for name, values in progress.metrics.items():
        if len(values) and (steps < 1 or steps % len(values)):
            raise ValueError(
                f"{name} has {len(values)} entries for {steps} steps; the number must divide the steps"
            )
        for entry, value in enumerate(values, start=1):
            step = start + entry * steps // len(values)
            for index in np.ndindex(np.shape(value)):
                suffix = "".join(f"/{i}" for i in index)
                found.append((name + suffix, step, float(value[index])))
    return found


def history(made: Iterable[Row]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows -> the steps and values of each metric, as plots take them."""
    points: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in made:
        points.setdefault(name, []).append((step, value))
    return {
        name: (np.array([step for step, _ in found]), np.array([value for _, value in found]))
        for name, found in points.items()
    }
