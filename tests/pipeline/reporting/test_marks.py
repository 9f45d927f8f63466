"""Tests the lines that show the position of a score between bad and good."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from pipeline.reporting.marks import Mark, Span, as_svg, as_text, ends, mark_of
from quatrain.baselines import Gated, StoredMetric, Verdict, compare, entry_of, judge

HIGHER = Gated(
    "accuracy",
    "higher",
    0.1,
    {"default": 0.7},
    ("floor_random", "floor_constant"),
    ("oracle", "limit"),
)
LOWER = Gated("error", "lower", 0.5, {}, ("zero", "affine"), ("floor",))
ALONE = Gated("rate", "higher", 0.2, {"default": 0.6})
ALONE_LOWER = Gated("rate", "lower", 0.2, {})
NEAR = Gated("rate", "near", 0.2, {})
SCORES = {
    "accuracy": 0.6,
    "floor_random": 0.1,
    "floor_constant": 0.2,
    "oracle": 1.0,
    "limit": 0.9,
    "error": 2.0,
    "zero": 8.0,
    "affine": 6.0,
    "floor": 1.0,
    "rate": 0.5,
}


def mark(gated: Gated, **changed: Any) -> Mark:
    """Returns the mark of a score that was 0.6, 2 or 0.5 when the baseline was stored."""
    rule, scores = gated.under("default"), SCORES | changed
    stored = entry_of(rule, SCORES)
    baseline = {
        "schema": 1,
        "presets": {"default": {"metrics": {rule.metric: stored}, "provenance": {}}},
    }
    verdict = judge(scores, baseline, [rule], "default")
    result = mark_in(verdict, stored, scores)
    assert result is not None
    return result


def mark_in(verdict: Verdict, entry: dict[str, Any], scores: dict[str, Any]) -> Mark | None:
    """Returns the mark of a verdict on one metric, whose baseline stores this entry."""
    (line,) = verdict.lines
    stored = StoredMetric.model_validate(entry)
    (comparison,) = compare(verdict, {line.metric: stored}, scores)
    return mark_of(line, stored, comparison, scores)


def test_a_line_goes_from_the_best_lower_to_the_best_upper_reference():
    result = mark(HIGHER, accuracy=0.8)
    assert result.span == Span(0.2, 1.0, "floor_constant", "oracle")
    assert result[1:] == (pytest.approx(0.75), pytest.approx(0.5), pytest.approx(0.625), None)


def test_a_line_begins_with_the_higher_value_if_lower_is_better():
    result = mark(LOWER, error=3.5)
    assert result.span == Span(6.0, 1.0, "affine", "floor")
    assert (result.score, result.baseline) == (0.5, 0.8)


@pytest.mark.parametrize(
    ("gated", "span"),
    [
        (ALONE, Span(0.3, 0.7, "worse", "better")),
        (ALONE_LOWER, Span(0.7, 0.3, "worse", "better")),
        (NEAR, Span(0.3, 0.7, "too low", "too high")),
    ],
)
def test_without_references_the_verdict_changes_at_the_ends(gated: Gated, span: Span):
    result = mark(gated, rate=0.6)
    assert result.span[:2] == pytest.approx(span[:2])
    assert result.span[2:] == span[2:]
    assert result.baseline == pytest.approx(0.5)


def test_noise_moves_the_ends_as_it_moves_the_verdict():
    assert mark(ALONE, rate_low=0.1, rate_high=0.9).span[:2] == pytest.approx((0.1, 0.9))


def test_an_interval_goes_from_left_to_right_in_both_directions():
    assert mark(HIGHER, accuracy_low=0.4, accuracy_high=0.8).interval == pytest.approx((0.25, 0.75))
    assert mark(LOWER, error_low=1.5, error_high=3.5).interval == pytest.approx((0.5, 0.9))


@pytest.mark.parametrize(
    "changed", [{"accuracy": None}, {"accuracy_low": None, "accuracy_high": None}]
)
def test_a_score_or_interval_that_is_not_finite_is_not_drawn(changed: dict[str, None]):
    rule = HIGHER.under("default")
    stored, scores = entry_of(rule, SCORES), SCORES | changed
    baseline = {
        "schema": 1,
        "presets": {"default": {"metrics": {rule.metric: stored}, "provenance": {}}},
    }
    verdict = judge(scores, baseline, [rule], "default")
    drawn = mark_in(verdict, stored, scores)
    if "accuracy" in changed:
        assert drawn is None
    else:
        assert drawn is not None
        assert drawn.interval is None


def test_a_line_without_length_has_no_mark():
    gated = ALONE._replace(tolerance=0.0)
    rule = gated.under("default")
    stored = entry_of(rule, SCORES)
    baseline = {
        "schema": 1,
        "presets": {"default": {"metrics": {"rate": stored}, "provenance": {}}},
    }
    verdict = judge(SCORES, baseline, [rule], "default")
    assert mark_in(verdict, stored, SCORES) is None


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (Mark(Span(0, 1, "a", "b"), 0.5, None, None, None), "`├──────────●──────────┤`"),
        (Mark(Span(0, 1, "a", "b"), 0.75, 0.5, 0.25, None), "`├─────┊────┼────●─────┤`"),
        (Mark(Span(0, 1, "a", "b"), 0.5, 0.0, 1.0, (0.25, 0.75)), "`├┼────━━━━━●━━━━━────┊┤`"),
        (Mark(Span(0, 1, "a", "b"), 1.5, 0.5, None, (0.9, 2.0)), "`├──────────┼───────━━▶┤`"),
        (Mark(Span(0, 1, "a", "b"), -0.5, 0.5, 7.0, None), "`├◀─────────┼──────────┤`"),
    ],
)
def test_the_line_as_text(result: Mark, line: str):
    assert as_text(result) == f"{line}<br>a 0.000 … b 1.000"


def parsed(result: Mark) -> dict[str, dict[str, str]]:
    """Returns class -> attributes of the elements of the drawing."""
    drawing, _, label = as_svg(result).partition("<br>")
    assert label == ends(result.span)
    return {part.attrib["class"]: part.attrib for part in ElementTree.fromstring(drawing).iter()}


def test_the_drawing_shows_the_same_as_the_text():
    drawn = parsed(Mark(Span(0, 1, "a", "b"), 0.75, 0.5, 0.25, (0.7, 0.8)))
    assert set(drawn) == {"mark", "track", "interval", "baseline", "goal", "score"}
    assert drawn["mark"]["aria-label"] == "score at 75% of the way from a to b"
    assert drawn["score"]["cx"] == "146.0"
    assert drawn["baseline"]["d"].startswith("M100.0 ")
    assert drawn["goal"]["d"].startswith("M54.0 ")
    assert [float(x) for x in re.findall(r"[MH]([\d.]+)", drawn["interval"]["d"])] == [136.8, 155.2]


@pytest.mark.parametrize(("place", "tip"), [(1.5, "M200 "), (-0.5, "M0 ")])
def test_a_score_beyond_the_end_is_an_arrow(place: float, tip: str):
    drawn = parsed(Mark(Span(0, 1, "a", "b"), place, 0.5, 7.0, None))
    assert set(drawn) == {"mark", "track", "baseline", "score"}
    assert drawn["score"]["d"].startswith(tip)


def test_names_in_a_drawing_are_text():
    assert parsed(Mark(Span(0, 1, '<"a">', "b"), 0.5, None, None, None))["mark"][
        "aria-label"
    ].endswith('from <"a"> to b')
