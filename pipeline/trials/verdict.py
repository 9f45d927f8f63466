"""trials of a search, outcomes of repetitions -> the trial that is better than the start."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pipeline.trials.search import Row, rank
from pipeline.trials.space import Space
from pipeline.trials.trial import Outcome
from quatrain.comparison import ERROR, Difference, in_words, measure

# Outcomes by base seed of the start, 0, and of trials, by number.
Repeated = Mapping[int, Sequence[Outcome]]


class Result(NamedTuple):
    """Holds what a sweep found.

    differences: of the repeated trials from the start, by number. text: what was found, for a
    person. best: the trial to adopt; the start if it was compared and none is better; None if
    nothing could be compared. seed: the base seed to adopt it with; None: that of the search.
    """

    space: Space
    rows: Sequence[Row]
    differences: Mapping[int, Difference]
    text: str
    best: Row | None = None
    seed: int | None = None


def decide(space: Space, rows: Sequence[Row], repeated: Repeated) -> Result:
    """Returns the best trial if its repetitions are better than those of the start, beyond chance.

    Without repetitions (`confirm: null`) the best score of the search decides.
    """
    differences = compare(space, repeated)
    result = partial(Result, space, rows, differences)
    ranked = rank(rows, space.is_higher_better)
    if not ranked:
        return result("nothing was found: no trial has a score")
    if space.sweep.confirm is None:
        best = ranked[0]
        text = f"trial {best.number} has the best score of the search; nothing was repeated"
        return result(text, best)
    if not repeated:
        return result("nothing was found: no other trial than the start has a score")
    if not differences:
        return result("nothing was found: the start, or all others, could not be repeated")
    sign, rule = 1 if space.is_higher_better else -1, space.rule
    number, most = max(
        differences.items(), key=lambda item: (item[1].verdict == "better", sign * item[1].mean)
    )
    text = f"trial {number} against the start: {in_words(most, rule.metric, rule.tolerance)}"
    if most.verdict != "better":
        return result(f"nothing was found: {text}", rows[0])
    states = [outcome.state for outcome in repeated[number]]
    return result(text, rows[number], space.sweep.confirm.base_seeds[states.index("finished")])


def compare(space: Space, repeated: Repeated) -> dict[int, Difference]:
    """Returns how trials differ from the start, without those of which a repetition failed.

    All intervals together hold the truth in 1 - ERROR of sweeps (Bonferroni): the best of several
    is chosen.
    """
    rule = space.rule
    scores = {
        number: np.array([each.scores.get(rule.metric) for each in outcomes], float)
        for number, outcomes in repeated.items()
        if all(each.state in ("finished", "diverged") for each in outcomes)
    }
    start = scores.pop(0, None)
    level = ERROR / max(1, len(scores))
    return {
        number: measure(start, of_trial, rule.direction, rule.tolerance, level)
        for number, of_trial in scores.items()
        if start is not None and np.isfinite([start, of_trial]).any()
    }
