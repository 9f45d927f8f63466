"""a judged score -> a line from bad to good on which a reader sees where it stands, as text or as SVG."""

import html
from collections.abc import Mapping
from typing import Any, NamedTuple

from quatrain.baselines import Comparison, Line, Scores

CELLS = 21
"""Characters of a line of text."""
WIDTH, HEIGHT, MARGIN = 200, 22, 8
LEGEND = "● score, ━ its 95 % interval, ┼ baseline, ┊ goal; right is good, an arrow points beyond the end"


class Span(NamedTuple):
    """From the bad end of a line to the good one: numbers, and what they are."""

    left: float
    right: float
    left_name: str
    right_name: str

    def place(self, value: float | None) -> float | None:
        """Where a value stands: 0 at the bad end, 1 at the good one, less or more beyond them."""
        return None if value is None else (value - self.left) / (self.right - self.left)


class Mark(NamedTuple):
    """Where a score, its interval, its baseline and its goal stand on a line."""

    span: Span
    score: float
    baseline: float | None
    goal: float | None
    interval: tuple[float, float] | None


def mark_of(
    line: Line, stored: Mapping[str, Any], found: Comparison, scores: Scores
) -> Mark | None:
    """The line of one metric; None where there is no baseline, no score, or nothing to stand between."""
    span = None if found.difference is None else span_of(line, stored, found.half)
    score = None if span is None else span.place(found.new)
    if span is None or score is None:
        return None
    ends = [span.place(scores.get(f"{line.metric}{end}")) for end in ("_low", "_high")]
    low, high = sorted(end for end in ends if end is not None) if None not in ends else (None, None)
    interval = None if low is None or high is None else (low, high)
    return Mark(span, score, span.place(found.old), span.place(stored["goal"]), interval)


def span_of(line: Line, stored: Mapping[str, Any], half: float | None) -> Span | None:
    """From the best floor to the best ceiling; where a metric lacks one, from clearly worse to clearly better."""
    best, floors, ceilings = (
        (min if line.direction == "lower" else max),
        stored["floors"],
        stored["ceilings"],
    )
    if floors and ceilings:
        floor, ceiling = (
            best(floors, key=floors.__getitem__),
            best(ceilings, key=ceilings.__getitem__),
        )
        return _span(floors[floor], ceilings[ceiling], floor, ceiling)
    margin = max(line.tolerance, half or 0.0)
    if line.direction == "near":
        return _span(stored["value"] - margin, stored["value"] + margin, "too low", "too high")
    sign = -1 if line.direction == "lower" else 1
    return _span(
        stored["value"] - sign * margin, stored["value"] + sign * margin, "worse", "better"
    )


def _span(left: float, right: float, left_name: str, right_name: str) -> Span | None:
    return None if left == right else Span(left, right, left_name, right_name)


def ends(span: Span) -> str:
    """What the ends of a line are."""
    return f"{span.left_name} {span.left:.3f} … {span.right_name} {span.right:.3f}"


def as_text(mark: Mark) -> str:
    """The line in Markdown, without blanks so that it never breaks."""
    line = ["─"] * CELLS
    if mark.interval is not None:
        low, high = map(_cell, mark.interval)
        line[low : high + 1] = ["━"] * (high + 1 - low)
    for place, sign in ((mark.goal, "┊"), (mark.baseline, "┼"), (mark.score, "●")):
        if place is not None and (0 <= place <= 1 or sign == "●"):
            line[_cell(place)] = sign if 0 <= place <= 1 else "◀" if place < 0 else "▶"
    return f"`├{''.join(line)}┤`<br>{ends(mark.span)}"


def _cell(place: float) -> int:
    return round(_within(place) * (CELLS - 1))


def _within(place: float) -> float:
    return min(max(place, 0.0), 1.0)


def as_svg(mark: Mark) -> str:
    """The line as a drawing that takes its colours from the page."""
    middle = HEIGHT / 2
    parts = [f'<path class="track" d="M{MARGIN} {middle}H{WIDTH - MARGIN}"/>']
    if mark.interval is not None:
        low, high = map(_x, mark.interval)
        parts.append(f'<path class="interval" d="M{low} {middle}H{high}"/>')
    for place, name in ((mark.goal, "goal"), (mark.baseline, "baseline")):
        if place is not None and 0 <= place <= 1:
            parts.append(f'<path class="{name}" d="M{_x(place)} 3V{HEIGHT - 3}"/>')
    if 0 <= mark.score <= 1:
        parts.append(f'<circle class="score" cx="{_x(mark.score)}" cy="{middle}" r="5"/>')
    else:
        tip, back = (WIDTH, WIDTH - 10) if mark.score > 1 else (0, 10)
        parts.append(f'<path class="score" d="M{tip} {middle}L{back} 5V{HEIGHT - 5}Z"/>')
    label = html.escape(
        f"score at {mark.score:.0%} of the way from {mark.span.left_name} to {mark.span.right_name}"
    )
    drawing = f'<svg class="mark" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return f"{drawing}<br>{ends(mark.span)}"


def _x(place: float) -> str:
    return f"{MARGIN + _within(place) * (WIDTH - 2 * MARGIN):.1f}"
