"""Tests the lines that show the position of a score between bad and good."""

from typing import Any

import pytest

from pipeline.reporting.marks import mark
from quatrain.baselines import Rule, entry_of
from quatrain.judgement import Line, judge

FLOORS = {"floor_random": "random", "floor_constant": "constant"}
CEILINGS = {"oracle": "the oracle", "limit": "the limit"}
HIGHER = Rule("accuracy", "higher", 0.1, {}, FLOORS, CEILINGS)
LOWER = Rule("error", "lower", 0.5, {}, {"zero": "none", "affine": "affine"}, {"floor": "least"})
ALONE = Rule("rate", "higher", 0.2, {"default": 0.6})
ALONE_LOWER = Rule("rate", "lower", 0.2, {})
NEAR = Rule("rate", "near", 0.2, {})
SCORES = {"accuracy": 0.6, "floor_random": 0.1, "floor_constant": 0.2, "oracle": 1.0, "limit": 0.9}
SCORES |= {"error": 2.0, "zero": 8.0, "affine": 6.0, "floor": 1.0, "rate": 0.5}


def drawn(gated: Rule, **changed: Any) -> str:
    """Returns the mark of a score that was 0.6, 2 or 0.5 when the baseline was stored."""
    rule, scores = gated.under("default"), SCORES | changed
    metrics = {"metrics": {rule.metric: entry_of(rule, SCORES)}, "provenance": {}}
    content = {"schema": 1, "presets": {"default": metrics}}
    (line,) = judge(scores, content, [rule], "default").lines
    return mark(line, scores)


def ends(metric: str, low: float, high: float, seeds: float = 4.0) -> dict[str, float]:
    return {f"{metric}_low": low, f"{metric}_high": high, "seeds": seeds}


OVER_SEEDS = ends("accuracy", 0.4, 0.8)
FEW_SEEDS = ends("accuracy", 0.4, 0.8, seeds=3.0)
ACCURACY = "constant 0.200 … the oracle 1.000"


@pytest.mark.parametrize(
    ("gated", "changed", "line", "names"),
    [
        # From the best lower to the best upper reference of this evaluation.
        (HIGHER, {}, "──────────●──────────", ACCURACY),
        (HIGHER, {"accuracy": 1.2}, "──────────┼─────────▶", ACCURACY),
        (HIGHER, {"accuracy": 0.7} | OVER_SEEDS, "─────━━━━━┼━●━━━─────", ACCURACY),
        (HIGHER, {"accuracy": 0.7} | FEW_SEEDS, "──────────┼─●────────", ACCURACY),
        (LOWER, {"error": 3.5}, "──────────●─────┼────", "affine 6.000 … least 1.000"),
        # Without references, from where it would be worse to where it would be better.
        (ALONE, {}, "──────────●────┊─────", "worse 0.300 … better 0.700"),
        (ALONE_LOWER, {"rate": 0.6}, "─────●────┼──────────", "worse 0.700 … better 0.300"),
        (NEAR, {"rate": 0.4}, "─────●────┼──────────", "too low 0.300 … too high 0.700"),
        (ALONE._replace(most=0.6), {}, "─────────────●──────┊", "worse 0.300 … better 0.600"),
        # Noise widens that.
        (ALONE, ends("rate", 0.2, 0.8), "━━━━━━━━━━●━━┊━━━━━━━", "worse 0.200 … better 0.800"),
    ],
)
def test_a_line_shows_score_baseline_goal_and_interval_from_bad_to_good(
    gated: Rule, changed: dict[str, float], line: str, names: str
):
    assert drawn(gated, **changed) == f"`├{line}┤`<br>{names}"


def test_what_is_not_finite_or_has_no_length_is_not_drawn():
    assert drawn(HIGHER, accuracy=None) == "-"
    assert drawn(ALONE._replace(tolerance=0.0)) == "-"
    assert mark(Line("rate", "stale", "", value=0.5, baseline=0.5), SCORES) == "-"
    assert mark(Line("rate", "no baseline", "", ALONE.under("default"), 0.5), SCORES) == "-"
