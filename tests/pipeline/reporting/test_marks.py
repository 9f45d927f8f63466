"""Tests the lines that show the position of a score between bad and good."""

from typing import Any
from xml.etree import ElementTree

import pytest

from pipeline.reporting.marks import Mark, Span, as_svg, as_text, ends, mark_of
from quatrain.baselines import Gated, entry_of, preset_of
from quatrain.judgement import compare, judge

FLOORS, CEILINGS = ("floor_random", "floor_constant"), ("oracle", "limit")
HIGHER = Gated("accuracy", "higher", 0.1, {"default": 0.7}, FLOORS, CEILINGS)
LOWER = Gated("error", "lower", 0.5, {}, ("zero", "affine"), ("floor",))
ALONE = Gated("rate", "higher", 0.2, {"default": 0.6})
ALONE_LOWER = Gated("rate", "lower", 0.2, {})
NEAR = Gated("rate", "near", 0.2, {})
SCORES = {"accuracy": 0.6, "floor_random": 0.1, "floor_constant": 0.2, "oracle": 1.0, "limit": 0.9}
SCORES |= {"error": 2.0, "zero": 8.0, "affine": 6.0, "floor": 1.0, "rate": 0.5}


def mark(gated: Gated, **changed: Any) -> Mark | None:
    """Returns the mark of a score that was 0.6, 2 or 0.5 when the baseline was stored."""
    rule, scores = gated.under("default"), SCORES | changed
    metrics = {"metrics": {rule.metric: entry_of(rule, SCORES)}, "provenance": {}}
    content = {"schema": 1, "presets": {"default": metrics}}
    verdict = judge(scores, content, [rule], "default")
    stored = preset_of(content, "default").metrics
    (comparison,) = compare(verdict, stored, scores)
    return mark_of(rule, comparison, scores)


def test_a_line_goes_from_the_best_lower_to_the_best_upper_reference():
    span, *positions = mark(HIGHER, accuracy=0.8, accuracy_low=0.4, accuracy_high=0.8, seeds=4.0)
    assert span == Span(0.2, 1.0, "floor_constant", "oracle")
    assert positions[:3] == pytest.approx([0.75, 0.5, 0.625])
    assert positions[3] == pytest.approx((0.25, 0.75))
    moved = mark(HIGHER, accuracy=0.8, oracle=2.2).span
    assert moved == Span(0.2, 2.2, "floor_constant", "oracle")
    span, *positions = mark(LOWER, error=3.5, error_low=1.5, error_high=3.5, seeds=4.0)
    assert span == Span(6.0, 1.0, "affine", "floor")
    assert positions[:3] == [0.5, 0.8, None]
    assert positions[3] == pytest.approx((0.5, 0.9))


@pytest.mark.parametrize(
    ("gated", "noise", "span"),
    [
        (ALONE, 0.0, Span(0.3, 0.7, "worse", "better")),
        (ALONE, 0.3, Span(0.2, 0.8, "worse", "better")),
        (ALONE, 9.0, Span(0.1, 0.9, "worse", "better")),
        (ALONE_LOWER, 0.0, Span(0.7, 0.3, "worse", "better")),
        (NEAR, 0.0, Span(0.3, 0.7, "too low", "too high")),
    ],
)
def test_without_references_the_verdict_changes_at_the_ends(gated: Gated, noise: float, span: Span):
    result = mark(gated, rate_low=0.5 - noise, rate_high=0.5 + noise, seeds=4.0)
    assert result.span[:2] == pytest.approx(span[:2])
    assert result.span[2:] == span[2:]
    assert result.baseline == pytest.approx(0.5)


def test_what_is_not_finite_or_has_no_length_is_not_drawn():
    assert mark(HIGHER, accuracy=None) is None
    assert mark(HIGHER, accuracy_low=None, accuracy_high=None).interval is None
    assert mark(HIGHER, accuracy_low=0.5, accuracy_high=0.7, seeds=3.0).interval is None
    assert mark(ALONE._replace(tolerance=0.0)) is None


SPAN = Span(0, 1, "a", "b")
SIGNS = {"━": "interval", "┼": "baseline", "┊": "goal"}


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (Mark(SPAN, 0.5, None, None, None), "├──────────●──────────┤"),
        (Mark(SPAN, 0.75, 0.5, 0.25, None), "├─────┊────┼────●─────┤"),
        (Mark(SPAN, 0.5, 0.0, 1.0, (0.25, 0.75)), "├┼────━━━━━●━━━━━────┊┤"),
        (Mark(SPAN, 1.5, 0.5, None, (0.9, 2.0)), "├──────────┼───────━━▶┤"),
        (Mark(SPAN, -0.5, 0.5, 7.0, None), "├◀─────────┼──────────┤"),
    ],
)
def test_text_and_drawing_show_the_same(result: Mark, line: str):
    assert as_text(result) == f"`{line}`<br>a 0.000 … b 1.000"
    drawing, _, label = as_svg(result).partition("<br>")
    assert label == ends(SPAN)
    parts = {part.attrib["class"]: part.attrib for part in ElementTree.fromstring(drawing).iter()}
    for sign, tip in (("▶", "M200 "), ("◀", "M0 ")):
        assert parts["score"].get("d", "").startswith(tip) == (sign in line)
    shown = {name for sign, name in SIGNS.items() if sign in line}
    assert set(parts) == {"mark", "track", "score", *shown}


def test_a_drawing_says_where_the_score_is_and_names_in_it_are_text():
    drawing = as_svg(Mark(Span(0, 1, '<"a">', "b"), 0.75, None, None, None)).partition("<br>")[0]
    svg, _, score = ElementTree.fromstring(drawing).iter()
    assert svg.attrib["aria-label"] == 'score at 75% of the way from <"a"> to b'
    assert score.attrib["cx"] == "146.0"
