"""a row's goal as its JSON says it -> what was asked, what was reached, and what share of it that is."""

from typing import NamedTuple

from benchmarks.kept import Row
from pipeline.reporting.speed import LIMIT, PLAIN, VARIANT, in_units, percent, times

RATIOS = {"before": PLAIN, "seed's way": VARIANT, "limit": LIMIT}
"""What a goal names -> the ratio that it is about."""


class Told(NamedTuple):
    """A goal in words; `share` is 100 % where it is just met."""

    asked: str
    reached: str
    share: str


def of(row: Row) -> Told | None:
    """None where a row has no goal."""
    if row.goal is None:
        return None
    sign, number, against = row.goal.split(" ", 2)
    asked = float(number.removesuffix("x"))
    if sign == "<=":
        taken = row.ours.median
        return Told(
            f"at most {in_units(asked, row.unit)}",
            in_units(taken, row.unit),
            percent(asked / taken),
        )
    ratio = row.ratios.get(RATIOS[against])
    found = 0.0 if ratio is None else ratio.median
    shown = percent if against == "limit" else times
    reached = shown(found) if ratio is not None else "not measured"
    return Told(f"at least {shown(asked)} {WORDS[against]}", reached, percent(found / asked))


WORDS = {"before": "before", "seed's way": "the proposal's way", "limit": "of the machine's limit"}
