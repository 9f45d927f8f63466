"""trials of a search, scores of repetitions -> the trial that is better than the start, if any."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pipeline.trials.comparison import Gain, Scores, compare
from pipeline.trials.search import Row, rank
from pipeline.trials.space import Space


class Result(NamedTuple):
    """Holds what a sweep found.

    repeated: scores by base seed of the trials that were repeated, by number. gains: over the
    start. text: what was found, for a person. best: the trial to adopt; the start if it was
    compared and none is better; None if nothing could be compared.
    """

    space: Space
    rows: Sequence[Row]
    repeated: Mapping[int, Scores]
    gains: Mapping[int, Gain]
    text: str
    best: Row | None = None


def decide(space: Space, rows: Sequence[Row], repeated: Mapping[int, Scores]) -> Result:
    """Returns the best trial if its repetitions are better than those of the start, beyond chance.

    Without repetitions (`confirm: null`) the best score of the search decides.
    """
    gains = {}
    for number, scores in repeated.items():
        gain = compare(scores, repeated[0], space.is_higher_better)
        if number and gain is not None:
            gains[number] = gain
    result = partial(Result, space, rows, repeated, gains)
    ranked = rank(rows, space.is_higher_better)
    if not ranked:
        return result("nothing was found: no trial has a score")
    if space.sweep.confirm is None:
        best = ranked[0]
        text = f"trial {best.number} has the best score of the search; nothing was repeated"
        return result(text, best)
    if not repeated:
        return result("nothing was found: no other trial than the start has a score")
    if not gains:
        return result("nothing was found: the start, or all others, could not be repeated")
    number = max(gains, key=lambda each: gains[each].mean)
    by = f"{gains[number]} {space.sweep.judge} over {space.sweep.confirm.seeds} seeds"
    if gains[number].is_clear:
        return result(f"trial {number} is better than the start by {by}", rows[number])
    text = f"nothing was found: trial {number} is not clearly better: by {by}"
    return result(text, rows[0])
