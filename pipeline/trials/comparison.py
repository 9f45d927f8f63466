"""scores of trials and of the start, over base seeds -> the one that is better, if one is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.trials.space import Space, Values
from pipeline.trials.trial import Point
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.statistics import half_interval

# One for each base seed; None of one that has no score.
Scores = Sequence[float | None]


class Row(NamedTuple):
    """Holds what is known of a trial of the search.

    score: the judged metric; None unless `finished`. last: where the schedule compared it last.
    seconds: of its last attempt. reason: why it has no score.
    """

    number: int
    values: Values
    state: str
    score: float | None
    last: Point | None
    seconds: float
    reason: str

    @property
    def name(self) -> str:
        return f"{self.number:04d}"


class Gain(NamedTuple):
    """Holds by how much a trial is better than the start, in the unit of the score.

    half: half of the 95 % interval; None for fewer than SEEDS_OF_INTERVAL base seeds.
    """

    mean: float
    half: float | None

    @property
    def is_clear(self) -> bool:
        return self.half is not None and self.mean > self.half

    def __str__(self) -> str:
        """Formats `0.012 (0.004 to 0.02)`, without an interval if there is none."""
        if self.half is None:
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ({self.mean - self.half:.3g} to {self.mean + self.half:.3g})"


class Verdict(NamedTuple):
    """Holds what a sweep found.

    gains: over the start, by the number of each trial that was repeated. best: the trial to adopt;
    None if none is better. text: the same for a person. keeps_start: whether the start was compared
    and none is better, so that an earlier preset of this sweep is wrong.
    """

    gains: Mapping[int, Gain]
    best: Row | None
    text: str
    keeps_start: bool = False


def rank(rows: Iterable[Row], is_higher_better: bool) -> list[Row]:
    """Returns the trials with a score, the best first; of equal ones the older first."""
    sign = -1 if is_higher_better else 1
    scored = [(sign * row.score, row.number, row) for row in rows if row.score is not None]
    return [row for *_, row in sorted(scored)]


def compare(scores: Scores, start: Scores, is_higher_better: bool) -> Gain | None:
    """Returns the mean of the differences seed by seed; None if a seed of one side has no score.

    The unit is a base seed, which both sides share: data, worlds and networks are drawn anew for
    each, and what both sides owe to them cancels out.
    """
    if None in (*scores, *start):
        return None
    new, old = np.array([scores, start], float)
    differences = new - old if is_higher_better else old - new
    has_interval = len(differences) >= SEEDS_OF_INTERVAL
    half = float(half_interval(differences)) if has_interval else None
    return Gain(float(differences.mean()), half)


def decide(space: Space, rows: Sequence[Row], repeated: Mapping[int, Scores]) -> Verdict:
    """Returns the best trial if its repetitions are better than those of the start, beyond chance.

    Without repetitions (`confirm: null`) the best score of the search decides.
    """
    best = rank(rows, space.is_higher_better)
    if not best:
        return Verdict({}, None, "nothing was found: no trial has a score")
    if space.sweep.confirm is None:
        first = best[0]
        text = f"trial {first.number} has the best score of the search; nothing was repeated"
        is_start = first.number == 0
        return Verdict({}, None if is_start else first, text, keeps_start=is_start)
    gains = {}
    for number, scores in repeated.items():
        gain = compare(scores, repeated[0], space.is_higher_better)
        if number and gain is not None:
            gains[number] = gain
    if not gains:
        text = "nothing was found: repetitions of the start, or of all others, have no score"
        return Verdict({}, None, text)
    number = max(gains, key=lambda each: gains[each].mean)
    difference = f"{gains[number]} {space.sweep.judge} over {space.sweep.confirm.seeds} seeds"
    if gains[number].is_clear:
        (winner,) = (row for row in rows if row.number == number)
        return Verdict(gains, winner, f"trial {number} is better than the start by {difference}")
    text = f"nothing was found: trial {number} is better by {difference}, which may be chance"
    return Verdict(gains, None, text, keeps_start=True)
