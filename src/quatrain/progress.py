"""The yields of a learner, their form as rows and as a history, and what its evaluation is."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from quatrain.errors import TrainingDiverged as TrainingDiverged


class Progress(NamedTuple):
    """Holds one yield of `train`: a state that may become a checkpoint, and metrics since the last
    yield.

    step: in the unit of the model's `record_every`. state: not modified while the next one is
    computed (its buffers are not donated), because it is the last good one if training diverges.
    metrics: name -> array whose first axis is time since the last yield; its length n divides the
    steps of the yield, entry i belongs to step start + (i+1)*steps/n. Each yield has the same
    names; a periodic evaluation that did not run has n = 0. Further axes become suffixes.
    """

    step: int
    state: Any
    metrics: Mapping[str, Shaped[np.ndarray, "time *axes"]]


class Evaluation(NamedTuple):
    """Holds scores by name, and what they were computed from, of a type of the model's own: figures
    show it (episodes that were played, fields that were estimated), and play nothing again.
    """

    scores: dict[str, float]
    outcomes: Any


# The name of a metric with suffixes, the step, and the value.
Row = tuple[str, int, float]
# The name of a metric with suffixes -> steps and values.
History = Mapping[str, tuple[np.ndarray, np.ndarray]]


def by_seed(
    metrics: Mapping[str, Shaped[np.ndarray, "_ _ ..."]],
) -> dict[str, Shaped[np.ndarray, "_ ..."]]:
    """Averages metrics (time, learners, *axes) over learners, and keeps those of each learner if
    there are several.

    `name` is the mean over learners, `name/seed` has all learners: for example `cosine/3` and
    `cosine/seed/1/3`.
    """
    named: dict[str, np.ndarray] = {}
    for name, values in metrics.items():
        if values.shape[1] == 1:
            named[name] = values[:, 0]
        else:
            named[name] = values.mean(1, dtype=np.float64)
            named[f"{name}/seed"] = values
    return named


def rows(progress: Progress, start: int) -> list[Row]:
    """Returns (name, step, value) of each entry of a yield whose last step before was `start`; axes
    become suffixes.

    Raises:
        ValueError: the number of entries of a metric does not divide the steps.
    """
    table: list[Row] = []
    steps = progress.step - start
    for name, values in progress.metrics.items():
        if len(values) and (steps < 1 or steps % len(values)):
            raise ValueError(
                f"{name} has {len(values)} entries for {steps} steps; "
                "the number must divide the steps"
            )
        for entry, value in enumerate(values, start=1):
            step = start + entry * steps // len(values)
            for index in np.ndindex(np.shape(value)):
                suffix = "".join(f"/{i}" for i in index)
                table.append((name + suffix, step, float(value[index])))
    return table


def history(table: Iterable[Row]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Groups rows by metric into steps and values."""
    points: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in table:
        points.setdefault(name, []).append((step, value))
    return {
        name: (np.array([step for step, _ in pairs]), np.array([value for _, value in pairs]))
        for name, pairs in points.items()
    }
