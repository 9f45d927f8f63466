"""the goal of a row as in its JSON -> what was asked, what was reached, and the share of it"""

from typing import NamedTuple

from benchmarks.result_files import Row
from pipeline.reporting.speed import LIMIT, PLAIN, VARIANT, in_units, percent, times

RATIOS = {"before": PLAIN, "seed's way": VARIANT, "limit": LIMIT}
"""What a goal names -> the ratio that it is about."""


class GoalSummary(NamedTuple):
    """Holds a goal in words; `share` is 100 % if it is just reached."""

    asked: str
    reached: str
    share: str


def of(row: Row) -> GoalSummary | None:
    """Summarises the goal of a row; None if it has none."""
    if row.goal is None:
        return None
    sign, number, against = row.goal.split(" ", 2)
    asked = float(number.removesuffix("x"))
    if sign == "<=":
        used = row.ours.median
        return GoalSummary(
            f"at most {in_units(asked, row.unit)}",
            in_units(used, row.unit),
            percent(asked / used),
        )
    ratio = row.ratios.get(RATIOS[against])
    result = 0.0 if ratio is None else ratio.median
    shown = percent if against == "limit" else times
    reached = shown(result) if ratio is not None else "not measured"
    return GoalSummary(
        f"at least {shown(asked)} {WORDS[against]}", reached, percent(result / asked)
    )


WORDS = {"before": "before", "seed's way": "the proposal's way", "limit": "of the machine's limit"}
