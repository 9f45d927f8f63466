"""finished trials of a sweep -> how far each key alone explains which are among the best."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pipeline.scaling.labels import as_json
from pipeline.scaling.records import Trial
from pipeline.scaling.result import Dimension, SweepResult, finite_score, ranked, searched

# Fewest trials on either side of "among the best".
LEAST = 5
SHUFFLES = 200
# Share of shuffled orders that stay below what counts as an effect.
CONFIDENCE = 0.99


class Importance(NamedTuple):
    """Holds the share of the variance of "is among the best `top` of `trials`" that each key
    explains alone, the largest first, and what CONFIDENCE of shuffled score orders stay below.
    """

    shares: dict[str, float]
    noise: dict[str, float]
    top: int
    trials: int

    @property
    def clear(self) -> list[str]:
        """Returns the keys that get more than keys without effect do."""
        return [key for key, share in self.shares.items() if share > self.noise[key]]


def obstacle(result: SweepResult) -> str:
    """Returns why importance cannot be computed; empty if it can."""
    trials = ranked(result, searched(result))
    if len(trials) < 2 * LEAST:
        return f"importance needs {2 * LEAST} finished trials of the search, here are {len(trials)}"
    if _count_top(trials) > len(trials) - LEAST:
        return "importance needs trials of differing scores, and too many here have equal ones"
    return ""


def importance(result: SweepResult) -> Importance:
    """Computes importances by PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255) within the trials
    of the search that have a score; call it only without an `obstacle`.

    PED-ANOVA compares the distribution of a key among the best quarter (at least LEAST) with that
    among all. Optuna returns the variance of the marginal mean of "is among the best"; it is
    divided here by the whole variance g (1 - g) for a share g of best trials. The score order is
    shuffled SHUFFLES times to see what a key without effect would get.
    """
    trials = ranked(result, searched(result))
    top = _count_top(trials)
    values = [_encoded(result, trial) for trial in trials]
    distributions = {
        key: _distribution(dimension, [row[key] for row in values])
        for key, dimension in result.space.items()
    }
    # Ranks do as well as scores: only who is among the best matters.
    ranks = np.arange(len(trials), dtype=float)
    rng = np.random.default_rng(0)
    with _quiet_optuna():
        shares = _shares(values, distributions, ranks, top)
        shuffled = [
            _shares(values, distributions, rng.permutation(ranks), top) for _ in range(SHUFFLES)
        ]
    noise = {
        key: float(np.quantile([each[key] for each in shuffled], CONFIDENCE)) for key in shares
    }
    ordered = sorted(shares, key=lambda key: -shares[key])
    return Importance({key: shares[key] for key in ordered}, noise, top, len(trials))


def _count_top(order: Sequence[Trial]) -> int:
    """Returns how many trials are among the best, with those that are as good as the last."""
    last = finite_score(order[max(LEAST, math.ceil(len(order) / 4)) - 1])
    return max(place for place, trial in enumerate(order, 1) if finite_score(trial) == last)


def _encoded(result: SweepResult, trial: Trial) -> dict[str, Any]:
    """Returns the values of a trial, choices as their indices."""
    values = dict(trial.values)
    for key, dimension in result.space.items():
        if dimension.choices is not None:
            options = [as_json(choice) for choice in dimension.choices]
            values[key] = options.index(as_json(values[key]))
    return {key: values[key] for key in result.space}


def _distribution(dimension: Dimension, values: Sequence[Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.choices is not None:
        return CategoricalDistribution(tuple(range(len(dimension.choices))))
    low, high = dimension.low, dimension.high
    if isinstance(low, int) and isinstance(high, int) and all(type(n) is int for n in values):
        return IntDistribution(low, high, log=dimension.is_log)
    assert low is not None  # a range has both ends
    assert high is not None
    return FloatDistribution(low, high, log=dimension.is_log)


def _shares(
    values: Sequence[dict[str, Any]], distributions: dict[str, Any], ranks: np.ndarray, top: int
) -> dict[str, float]:
    import optuna

    study = optuna.create_study(direction="minimize")
    study.add_trials(
        optuna.trial.create_trial(params=row, distributions=distributions, value=float(rank))
        for row, rank in zip(values, ranks, strict=True)
    )
    # Half a trial less, so that rounding up gives exactly `top`.
    quantile = (top - 0.5) / len(values)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
    share = top / len(values)
    variance = share * (1 - share)
    variances = evaluator.evaluate(study)
    return {key: variances[key] / variance for key in distributions}


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Silences the line that Optuna logs for each study."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
