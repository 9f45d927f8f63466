"""Trials of invented sweeps, for tests of what is made of them."""

from typing import Any

import numpy as np

from pipeline.scaling.records import Point, State, Trial
from pipeline.scaling.result import Dimension, SweepResult

RATE = "train.learning_rate"
HIDDEN = "network.hidden"
KIND = "decoder.kind"
SPACE = {
    RATE: Dimension(1e-4, 1e-2, True, None),
    HIDDEN: Dimension(16, 512, True, None),
    "train.discount": Dimension(0.9, 0.999, False, None),
    KIND: Dimension(None, None, False, ("linear", "mlp", "convolutional_transposed")),
}


def sweep(trials: list[Trial], space: dict[str, Dimension] = SPACE, **changes: Any) -> SweepResult:
    result = SweepResult(
        name="allo_lr",
        model="allo",
        preset="smoke",
        judge="cosine_mean",
        higher_is_better=True,
        watch="cosine_mean",
        search="tpe",
        space=space,
        trials=trials,
        adopted="allo_lr",
    )
    return result._replace(**changes)


def trial(number: int, score: float | None = None, **changes: Any) -> Trial:
    """Returns a finished trial of the search; with another state, one without a score."""
    content = {
        "number": number,
        "role": "start" if number == 0 else "search",
        "values": {RATE: 1e-3 * (1 + number), HIDDEN: 64, "train.discount": 0.95, KIND: "mlp"},
        "state": "finished",
        "score": score,
    }
    return Trial.model_validate(content | changes)


def confirm(
    number: int, repeats: int, score: float, half: float | None = None, seeds: int = 5
) -> Trial:
    interval = {} if half is None else {"low": score - half, "high": score + half}
    return trial(number, score, role="confirm", repeats=repeats, seeds=seeds, **interval)


def drawn(count: int, space: dict[str, Dimension], seed: int = 0) -> list[dict[str, Any]]:
    """Returns random values of each key."""
    rng = np.random.default_rng(seed)

    def draw(dimension: Dimension) -> Any:
        if dimension.choices is not None:
            return dimension.choices[rng.integers(len(dimension.choices))]
        if isinstance(dimension.low, int):
            return int(rng.integers(dimension.low, dimension.high, endpoint=True))
        ends = np.array([dimension.low, dimension.high])
        return float(np.exp(rng.uniform(*np.log(ends))) if dimension.is_log else rng.uniform(*ends))

    return [{key: draw(dimension) for key, dimension in space.items()} for _ in range(count)]


def mixed(count: int, space: dict[str, Dimension] = SPACE, seed: int = 0) -> list[Trial]:
    """Returns trials of all states with random values and scores, the start first."""
    rng = np.random.default_rng(seed)
    others: list[State] = ["stopped", "diverged", "failed", "running"]
    trials = []
    for number, values in enumerate(drawn(count, space, seed)):
        last = Point(step=100, value=float(rng.normal()))
        if number % 3 == 2:
            state = others[number // 3 % len(others)]
            trials.append(trial(number, None, values=values, state=state, last=last))
        else:
            trials.append(trial(number, float(rng.normal()), values=values, last=last))
    return trials
