"""a judged score -> a line from bad to good that shows its position, as text or as SVG."""

import html
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from quatrain.baselines import Rule
from quatrain.judgement import Comparison, Scores, allowance, interval_over_seeds, is_finite

# Characters of a line of text.
CELLS = 21
WIDTH = 200
HEIGHT = 22
MARGIN = 8
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

    def position(self, value: float | None) -> float | None:
        """Returns 0 at the bad end, 1 at the good one, less or more beyond them."""
        return None if value is None else (value - self.left) / (self.right - self.left)


class Mark(NamedTuple):
    """Holds the positions of a score, its baseline, goal and interval on a line."""

    span: Span
    score: float
    baseline: float | None
    goal: float | None
    interval: tuple[float, float] | None


def mark_of(rule: Rule | None, comparison: Comparison, scores: Scores) -> Mark | None:
    """Returns the mark of a metric; None without rule, baseline or score, or if both ends are
    equal.
    """
    old = comparison.old
    if rule is None or old is None or comparison.new is None:
        return None
    span = span_of(rule, old, comparison.half, scores)
    if span.left == span.right:
        return None
    score = span.position(comparison.new)
    assert score is not None  # there is a score
    low, high = map(span.position, interval_over_seeds(rule.metric, scores) or (None, None))
    interval = None if low is None or high is None else (min(low, high), max(low, high))
    return Mark(span, score, span.position(old), span.position(rule.goal), interval)


def span_of(rule: Rule, old: float, half: float | None, scores: Scores) -> Span:
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
    margin = allowance(rule.tolerance, half or 0.0)
    if rule.direction == "lower":
        margin = -margin
    return Span(possible(rule, old - margin), possible(rule, old + margin), *names)


def possible(rule: Rule, value: float) -> float:
    """Returns the value, or the bound of the metric that it passes."""
    least = value if rule.least is None else max(value, rule.least)
    return least if rule.most is None else min(least, rule.most)


def name_of(rule: Rule, reference: str) -> str:
    """Returns a reference in words, or as its metric is called."""
    return rule.names.get(reference, reference)


def finite_scores(names: Sequence[str], scores: Scores) -> dict[str, float]:
    values = {name: scores.get(name) for name in names}
    return {name: value for name, value in values.items() if is_finite(value)}


def ends(span: Span) -> str:
    return f"{span.left_name} {span.left:.3f} … {span.right_name} {span.right:.3f}"


def as_text(mark: Mark) -> str:
    """Draws the line in Markdown, without blanks so that it never breaks."""
    cells = ["─"] * CELLS
    if mark.interval is not None:
        low, high = map(_cell, mark.interval)
        cells[low : high + 1] = ["━"] * (high + 1 - low)
    for position, sign in ((mark.goal, "┊"), (mark.baseline, "┼")):
        if _is_inside(position):
            cells[_cell(position)] = sign
    arrow = "◀" if mark.score < 0 else "▶"
    cells[_cell(mark.score)] = "●" if _is_inside(mark.score) else arrow
    return f"`├{''.join(cells)}┤`<br>{ends(mark.span)}"


def _is_inside(position: float | None) -> TypeGuard[float]:
    return position is not None and 0 <= position <= 1


def _cell(position: float) -> int:
    return round(_clip(position) * (CELLS - 1))


def _clip(position: float) -> float:
    return min(max(position, 0.0), 1.0)


def as_svg(mark: Mark) -> str:
    """Draws the line as an SVG that takes its colours from the page."""
    middle = HEIGHT / 2
    parts = [f'<path class="track" d="M{MARGIN} {middle}H{WIDTH - MARGIN}"/>']
    if mark.interval is not None:
        low, high = map(_x, mark.interval)
        parts.append(f'<path class="interval" d="M{low} {middle}H{high}"/>')
    for position, name in ((mark.goal, "goal"), (mark.baseline, "baseline")):
        if _is_inside(position):
            parts.append(f'<path class="{name}" d="M{_x(position)} 3V{HEIGHT - 3}"/>')
    if _is_inside(mark.score):
        parts.append(f'<circle class="score" cx="{_x(mark.score)}" cy="{middle}" r="5"/>')
    else:
        tip = WIDTH if mark.score > 1 else 0
        parts.append(f'<path class="score" d="M{tip} {middle}L{abs(tip - 10)} 5V{HEIGHT - 5}Z"/>')
    label = html.escape(
        f"score at {mark.score:.0%} of the way from {mark.span.left_name} to {mark.span.right_name}"
    )
    return (
        f'<svg class="mark" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg><br>{ends(mark.span)}"
    )


def _x(position: float) -> str:
    return f"{MARGIN + _clip(position) * (WIDTH - 2 * MARGIN):.1f}"
