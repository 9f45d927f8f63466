"""a judged score -> a line from bad to good that shows its position, as text."""

from collections.abc import Iterable
from typing import NamedTuple

from quatrain.baselines import Rule
from quatrain.judgement import Line, Scores, is_finite

# Characters of a line.
CELLS = 21
LEGEND = (
    "● score, ━ its 95 % interval, ┼ baseline, ┊ goal; "
    "right is good, an arrow points beyond the end"
)


class Span(NamedTuple):
    """Holds the values and names of a line's ends: the left one is bad, the right one good."""

    left: float
    right: float
    left_name: str
    right_name: str

    def position(self, value: float) -> float:
        """Returns 0 at the bad end, 1 at the good one, less or more beyond them."""
        return (value - self.left) / (self.right - self.left)

    def cell(self, value: float) -> int:
        """Returns the number of the character that shows a value."""
        return round(min(max(self.position(value), 0.0), 1.0) * (CELLS - 1))


def mark(line: Line, scores: Scores) -> str:
    """Draws the line of a metric in Markdown, without blanks so that it never breaks; "-" without
    rule, baseline or score, or if both ends are equal.
    """
    if line.rule is None or line.baseline is None or line.value is None:
        return "-"
    span = span_of(line.rule, line.baseline, line.allowed, scores)
    if span.left == span.right:
        return "-"
    cells = ["─"] * CELLS
    if line.interval is not None:
        low, high = sorted(map(span.cell, line.interval))
        cells[low : high + 1] = ["━"] * (high + 1 - low)
    for value, sign in ((line.rule.goal, "┊"), (line.baseline, "┼"), (line.value, "●")):
        if value is not None and 0 <= span.position(value) <= 1:
            cells[span.cell(value)] = sign
        elif sign == "●":
            cells[span.cell(line.value)] = "◀" if span.position(line.value) < 0 else "▶"
    ends = f"{span.left_name} {span.left:.3f} … {span.right_name} {span.right:.3f}"
    return f"`├{''.join(cells)}┤`<br>{ends}"


def span_of(rule: Rule, baseline: float, allowed: float, scores: Scores) -> Span:
    """Returns the line from the best lower reference of this evaluation to the best upper one.

    A metric without them gets a line from clearly worse to clearly better than its baseline, but
    not beyond what is possible.
    """
    lower = finite_scores(rule.lower_references, scores)
    upper = finite_scores(rule.upper_references, scores)
    if lower and upper:
        best = min if rule.direction == "lower" else max
        left = best(lower, key=lower.__getitem__)
        right = best(upper, key=upper.__getitem__)
        return Span(lower[left], upper[right], name_of(rule, left), name_of(rule, right))
    names = ("too low", "too high") if rule.direction == "near" else ("worse", "better")
    margin = -allowed if rule.direction == "lower" else allowed
    return Span(possible(rule, baseline - margin), possible(rule, baseline + margin), *names)


def possible(rule: Rule, value: float) -> float:
    """Returns the value, or the bound of the metric that it passes."""
    least = value if rule.least is None else max(value, rule.least)
    return least if rule.most is None else min(least, rule.most)


def name_of(rule: Rule, reference: str) -> str:
    """Returns a reference in words, or as its metric is called."""
    return rule.references[reference]


def finite_scores(names: Iterable[str], scores: Scores) -> dict[str, float]:
    values = {name: scores.get(name) for name in names}
    return {name: value for name, value in values.items() if is_finite(value)}
