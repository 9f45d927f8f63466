"""the trials of a sweep -> their order, the winner, and how it compares with the start."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.scaling.records import State, Trial
from quatrain.seeds import SEEDS_OF_INTERVAL

# States of trials without a judged score, those that got furthest first.
UNSCORED: tuple[State, ...] = ("stopped", "running", "diverged", "failed", "refused")


class Dimension(NamedTuple):
    """Holds what a key may be: between low and high, or one of `choices` if these are not None."""

    low: float | None
    high: float | None
    is_log: bool
    choices: tuple[Any, ...] | None


class SweepResult(NamedTuple):
    """Holds all that the page of a sweep is made of.

    preset: what trials start from. judge: the gated metric. watch: the train metric by which
    trials are stopped. search: tpe, random or grid. adopted: the preset that was written, if any.
    """

    name: str
    model: str
    preset: str
    judge: str
    higher_is_better: bool
    watch: str
    search: str
    space: Mapping[str, Dimension]
    trials: Sequence[Trial]
    adopted: str | None


class Gain(NamedTuple):
    """Holds by how much the winner is better than the start, in the unit of the score.

    half: half of the difference's 95 % interval; None unless both scores have an interval.
    seeds: of the side that has fewer. is_confirmed: both scores are from confirming trials, else
    both are from the search.
    """

    value: float
    half: float | None
    seeds: int
    is_confirmed: bool

    @property
    def is_clear(self) -> bool | None:
        """Tells whether the interval excludes 0; None without an interval."""
        return None if self.half is None else abs(self.value) > self.half


def finite_score(trial: Trial) -> float:
    assert trial.score is not None, f"trial {trial.name} has no score"
    return trial.score


def has_score(trial: Trial) -> bool:
    return trial.state == "finished" and trial.score is not None


def ranked(result: SweepResult, trials: Sequence[Trial]) -> list[Trial]:
    return rank(trials, result.higher_is_better)


def rank(trials: Sequence[Trial], is_higher_better: bool) -> list[Trial]:
    """Returns the trials with a judged score, the best first; of equal ones the older first."""
    sign = -1 if is_higher_better else 1
    scored = [trial for trial in trials if has_score(trial)]
    return sorted(scored, key=lambda trial: (sign * finite_score(trial), trial.number))


def first_runs(result: SweepResult) -> list[Trial]:
    """Returns the start and the trials of the search, not those that confirm."""
    return [trial for trial in result.trials if trial.role != "confirm"]


def searched(result: SweepResult) -> list[Trial]:
    return [trial for trial in result.trials if trial.role == "search"]


def start_of(result: SweepResult) -> Trial | None:
    return next((trial for trial in result.trials if trial.role == "start"), None)


def confirmation_of(result: SweepResult, trial: Trial | None) -> Trial | None:
    """Returns the newest trial that repeated this one and has a judged score; None without one."""
    if trial is None:
        return None
    repeated = [
        other
        for other in result.trials
        if other.role == "confirm" and other.repeats == trial.number and has_score(other)
    ]
    return max(repeated, key=lambda other: other.number, default=None)


def confirmed(result: SweepResult) -> list[Trial]:
    """Returns the trials that were confirmed, the best when confirmed first."""
    pairs = {trial.number: trial for trial in first_runs(result)}
    repeats = [confirmation_of(result, trial) for trial in pairs.values()]
    order = ranked(result, [trial for trial in repeats if trial is not None])
    return [pairs[trial.repeats] for trial in order if trial.repeats is not None]


def winner_of(result: SweepResult) -> Trial | None:
    """Returns the trial whose values are the best: by confirmed scores, else by those of the
    search. It may be the start, if nothing was better; None if no trial has a score.
    """
    order = confirmed(result) or ranked(result, first_runs(result))
    return order[0] if order else None


def gain_of(result: SweepResult, trial: Trial) -> Gain | None:
    """Compares a trial with the start: both when confirmed, else both in the search.

    Returns None if one of them has no score.
    """
    start = start_of(result)
    repeats = (confirmation_of(result, trial), confirmation_of(result, start))
    is_confirmed = None not in repeats
    new, old = repeats if is_confirmed else (trial, start)
    if new is None or old is None or not (has_score(new) and has_score(old)):
        return None
    sign = 1 if result.higher_is_better else -1
    halves = (half_width(new), half_width(old))
    half = None if None in halves else math.hypot(*(each for each in halves if each is not None))
    value = sign * (finite_score(new) - finite_score(old))
    return Gain(value, half, min(new.seeds, old.seeds), is_confirmed)


def interval_of(trial: Trial) -> tuple[float, float] | None:
    """Returns the interval of a score over seeds; None for fewer than SEEDS_OF_INTERVAL."""
    if trial.low is None or trial.high is None or trial.seeds < SEEDS_OF_INTERVAL:
        return None
    return trial.low, trial.high


def half_width(trial: Trial) -> float | None:
    interval = interval_of(trial)
    return None if interval is None else (interval[1] - interval[0]) / 2


def count_states(trials: Sequence[Trial]) -> str:
    """Returns `8 finished, 2 diverged`."""
    counts = Counter(trial.state for trial in trials)
    return ", ".join(
        f"{counts[state]} {state}" for state in ("finished", *UNSCORED) if counts[state]
    )
