"""Tests the judgement case by case: only existing, finite and good enough scores pass."""

import math
from typing import Any

import pytest

from quatrain.baselines import Rule, entry_of
from quatrain.judgement import Judgement, judge

FLOORS = ("floor_random", "floor_constant")
ACCURACY = Rule(
    "accuracy", "higher", 0.02, {"default": 0.9}, dict.fromkeys(FLOORS, ""), {"oracle": ""}
)
ERROR = Rule("error", "lower", 0.3, {"default": 4.0}, {"floor_error": ""})
RATE = Rule("rate", "near", 0.05, {})
GATED = (ACCURACY, ERROR, RATE)
RULES = [gated.under("default") for gated in GATED]

SCORES = {
    "accuracy": 0.95,
    "error": 2.5,
    "rate": 0.25,
    "floor_random": 0.1,
    "floor_constant": 0.3,
    "floor_error": 7.0,
    "oracle": 1.0,
}
NAN = float("nan")


def baseline(preset: str = "default", **changed: float) -> dict[str, Any]:
    """Returns the file that promote would write for SCORES with changes."""
    metrics = {gated.metric: entry_of(gated.under(preset), SCORES | changed) for gated in GATED}
    presets = {preset: {"metrics": metrics, "provenance": {}}}
    return {"schema": 1, "model": "toy", "presets": presets}


def judge_scores(stored: Any = None, preset: str = "default", **changed: float | None) -> Judgement:
    rules = [gated.under(preset) for gated in GATED]
    return judge(SCORES | changed, stored or baseline(preset), rules, preset)


def line_of(judgement: Judgement, metric: str) -> tuple[str, str]:
    (line,) = [line for line in judgement.lines if line.metric == metric]
    return line.status, line.why


@pytest.mark.parametrize(
    ("metric", "value", "status", "why"),
    [
        ("accuracy", 0.931, "ok", "0.931 holds baseline 0.95 (higher is better, tolerance 0.02)"),
        ("accuracy", 0.92, "worse", "0.92 is 0.03 worse than baseline 0.95 (higher is better, "),
        ("accuracy", 0.98, "better", "0.98 is 0.03 better than baseline 0.95 (higher is better, "),
        ("error", 2.9, "worse", "2.9 is 0.4 worse than baseline 2.5 (lower is better, "),
        ("error", 1.5, "better", "1.5 is 1 better than baseline 2.5 (lower is better, "),
        ("rate", 0.29, "ok", "0.29 holds baseline 0.25 (nearer is better, tolerance 0.05)"),
        ("rate", 0.31, "worse", "0.31 is 0.06 worse than baseline 0.25 (nearer is better, "),
        ("rate", 0.19, "worse", "0.19 is 0.06 worse than baseline 0.25 (nearer is better, "),
        ("accuracy", None, "not finite", "is NaN or infinite"),
        ("accuracy", NAN, "not finite", "is NaN or infinite"),
        ("error", float("-inf"), "not finite", "is NaN or infinite"),
    ],
)
def test_a_score_is_judged_in_its_direction(
    metric: str, value: float | None, status: str, why: str
):
    judgement = judge_scores(**{metric: value})
    actual, said = line_of(judgement, metric)
    assert actual == status
    assert said.startswith(f"{metric} {why}")
    assert said.endswith("; `make promote` would store it") == (status == "better")
    assert judgement.passed == (status in ("ok", "better"))
    assert [each.status for each in judgement.lines if each.metric != metric] == ["ok", "ok"]


def test_a_score_must_also_reach_the_goal_of_its_preset_and_beat_every_floor():
    constant = "does not beat floor_constant 0.3 by more than 0.02 (higher is better)"
    worst = "does not beat floor_error 7 by more than 0.3 (lower is better)"
    for metric, stored, now, preset, why in (
        ("accuracy", 0.89, 0.885, "default", "misses the goal 0.9 (higher is better)"),
        ("error", 4.4, 4.5, "default", "misses the goal 4 (lower is better)"),
        ("accuracy", 0.315, 0.315, "smoke", constant),
        ("error", 7.1, 6.8, "smoke", worst),
    ):
        judgement = judge_scores(baseline(preset, **{metric: stored}), preset, **{metric: now})
        status = "below goal" if preset == "default" else "below floor"
        assert line_of(judgement, metric) == (status, f"{metric} {now} {why}")
        assert not judgement.passed
    assert judge_scores(baseline("smoke", accuracy=0.6), "smoke", accuracy=0.6).passed
    assert judge_scores(oracle=0.9).passed


def test_floors_are_those_of_the_evaluation_that_is_judged():
    """A floor that was stored when the world was easier neither excuses a score nor breaks it."""
    assert judge_scores(baseline(floor_constant=0.99)).passed
    harder = judge_scores(baseline(floor_constant=0.0), floor_constant=0.94)
    status, why = line_of(harder, "accuracy")
    assert (status, why[:46]) == ("below floor", "accuracy 0.95 does not beat floor_constant 0.9")
    for name in ("floor_constant", "oracle"):
        for value in (None, NAN, float("inf")):
            judgement = judge_scores(**{name: value})
            why = f"accuracy is judged beside {name}, which is NaN or infinite"
            assert line_of(judgement, "accuracy") == ("not finite", why)
            assert not judgement.passed
        reported = {key: value for key, value in SCORES.items() if key != name}
        why = f"accuracy is judged beside {name}, but the evaluation did not report that"
        judgement = judge(reported, baseline(), RULES, "default")
        assert line_of(judgement, "accuracy") == ("missing", why)


def test_a_metric_that_one_side_lacks_is_broken():
    stored = baseline()
    del stored["presets"]["default"]["metrics"]["rate"]
    reported = {name: value for name, value in SCORES.items() if name != "error"}
    missing = "is judged, but the evaluation did not report it"
    stale = "is in the baseline, but the model's evaluation does not judge it any more"
    for scores, content, rules, metric, status, why in (
        (reported, baseline(), RULES, "error", "missing", f"error {missing}"),
        (SCORES, stored, RULES, "rate", "no baseline", "rate 0.25 has no entry in the baseline"),
        (SCORES, baseline(), RULES[:2], "rate", "stale", f"rate {stale}"),
        (SCORES, None, [], "-", "missing", "nothing is judged: the model's evaluation names no m"),
        (SCORES, None, RULES, "rate", "no baseline", "preset 'default' has no baseline yet"),
        (SCORES, baseline("smoke"), RULES, "rate", "no baseline", "preset 'default' has no basel"),
    ):
        judgement = judge(scores, content, rules, "default")
        actual, said = line_of(judgement, metric)
        assert (actual, said[: len(why)]) == (status, why)
        assert not judgement.passed


@pytest.mark.parametrize(
    ("key", "to", "why"),
    [
        ("direction", "lower", "accuracy is 'lower' in the baseline, but the model says 'higher'"),
        ("tolerance", 0.5, "accuracy has another tolerance in the baseline than in the model"),
        ("goal", None, "accuracy has another goal in the baseline than in the model"),
        ("floors", ["floor_random"], "accuracy has another floors in the baseline than in the mod"),
        ("ceilings", [], "accuracy has another ceilings in the baseline than in the model"),
    ],
)
def test_a_rule_changed_by_hand_is_broken(key: str, to: Any, why: str):
    stored = baseline()
    stored["presets"]["default"]["metrics"]["accuracy"][key] = to
    for value in (0.5, 0.95, 0.99) if key == "direction" else (0.95,):
        judgement = judge_scores(stored, accuracy=value)
        status, said = line_of(judgement, "accuracy")
        assert (status, said[: len(why)], judgement.passed) == ("stale", why, False)


# Several learners: means with intervals.


def interval(mean: float, half: float, seeds: float = 4.0) -> dict[str, Any]:
    ends = {"accuracy": mean, "accuracy_low": mean - half, "accuracy_high": mean + half}
    return ends | {"seeds": seeds}


@pytest.mark.parametrize(
    ("mean", "status"), [(0.926, "ok"), (0.924, "worse"), (0.974, "ok"), (0.976, "better")]
)
def test_a_difference_counts_only_if_it_is_larger_than_its_interval(mean: float, status: str):
    """Half widths 0.015 and 0.02: a difference of independent means has 0.025."""
    stored = baseline(**interval(0.95, 0.015))
    entry = stored["presets"]["default"]["metrics"]["accuracy"]
    assert (entry["interval"], entry["seeds"]) == (pytest.approx([0.935, 0.965]), 4)
    actual, why = line_of(judge_scores(stored, **interval(mean, 0.02)), "accuracy")
    assert actual == status
    assert "tolerance 0.02, widened to 0.025 by noise)" in why


@pytest.mark.parametrize(("half", "seeds"), [(0.05, 4.0), (6.06, 5.0), (1e300, 10.0)])
def test_an_interval_at_most_doubles_the_tolerance(half: float, seeds: float):
    """However wide it is: a difference of 0.039 is allowed, one of 0.041 is not."""
    stored = baseline(**interval(0.99, 0.0))
    for value, status in ((0.951, "ok"), (0.949, "worse"), (1.029, "ok"), (1.031, "better")):
        judgement = judge_scores(stored, **interval(value, half, seeds))
        assert line_of(judgement, "accuracy")[0] == status


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"accuracy_low": NAN}, "nan to 1.0 is not finite"),
        ({"accuracy_high": float("inf")}, "0.9 to inf is not finite"),
        ({"accuracy_low": None}, "None to 1.0 is not finite"),
        ({"accuracy_low": 1.1}, "1.1 to 1 is reversed"),
        ({"accuracy_low": 0.96}, "0.96 to 1 does not hold 0.95"),
        ({"accuracy_low": 0.0, "accuracy_high": 0.9}, "0 to 0.9 does not hold 0.95"),
        ({"seeds": None}, "0.9 to 1 is one of None seeds"),
        ({"seeds": 0.0}, "0.9 to 1 is one of 0.0 seeds"),
        ({"seeds": 4.5}, "0.9 to 1 is one of 4.5 seeds"),
        ({"seeds": NAN}, "0.9 to 1 is one of nan seeds"),
    ],
)
def test_what_is_no_interval_of_the_score_is_broken_on_either_side(
    changed: dict[str, float | None], why: str
):
    ends = {"accuracy": 0.95, "accuracy_low": 0.9, "accuracy_high": 1.0, "seeds": 5.0}
    judgement = judge_scores(baseline(), **(ends | changed))
    remedy = "mend it in the model's evaluate.py"
    said = f"accuracy has no interval: {why}; {remedy}"
    assert line_of(judgement, "accuracy") == ("bad interval", said)
    assert not judgement.passed
    numbers = {name: value for name, value in (ends | changed).items() if value is not None}
    if len(numbers) == len(ends) and all(map(math.isfinite, numbers.values())):
        status, said = line_of(judge_scores(baseline(**numbers)), "accuracy")
        assert status == "bad baseline"
        assert said.startswith(f"accuracy has no interval in the baseline: {why}; ")


def test_an_interval_may_miss_its_score_by_the_rounding_of_a_mean():
    ends = {"accuracy_low": math.nextafter(0.95, 1), "accuracy_high": 0.96, "seeds": 5.0}
    assert judge_scores(**ends).passed
    assert judge_scores(baseline(**ends)).passed


@pytest.mark.parametrize("seeds", [1.0, 2.0, 3.0])
def test_an_interval_of_fewer_than_four_seeds_excuses_nothing(seeds: float):
    """Of two seeds, one of which failed, it was 0.477 +- 6.06 against 1."""
    for stored, now in (
        (interval(1.0, 0.0, 5.0), interval(0.477, 6.06, seeds)),
        (interval(1.0, 6.06, seeds), interval(0.477, 0.0, 5.0)),
        (interval(0.95, 6.06, seeds), interval(0.929, 6.06, seeds)),
    ):
        status, why = line_of(judge_scores(baseline(**stored), **now), "accuracy")
        assert status == "worse"
        assert "noise" not in why


def test_an_interval_on_one_side_is_used_and_never_replaces_tolerance_or_goal():
    assert judge_scores(baseline(), **interval(0.92, 0.04)).passed
    assert not judge_scores(baseline(), **interval(0.92, 0.025)).passed
    assert judge_scores(baseline(**interval(0.95, 1e-4)), **interval(0.94, 1e-4)).passed
    wide = judge_scores(baseline(accuracy=0.91), **interval(0.89, 0.2))
    assert line_of(wide, "accuracy")[0] == "below goal"


# Both sides of a line.


def test_each_judged_metric_stands_beside_its_stored_value_with_the_interval_that_judges():
    stored = baseline(**interval(0.95, 0.03))
    judgement = judge_scores(stored, **interval(0.985, 0.04), error=2.9, rate=NAN)
    accuracy, error, rate = judgement.lines
    assert [each.metric for each in judgement.lines] == ["accuracy", "error", "rate"]
    assert (accuracy.status, accuracy.baseline, accuracy.value) == ("ok", 0.95, 0.985)
    judged_by = (accuracy.difference, accuracy.half, accuracy.allowed)
    assert judged_by == pytest.approx((0.035, 0.05, 0.04))
    assert (error.difference, error.half) == (pytest.approx(0.4), None)
    # What is not finite has no difference.
    assert (rate.value, rate.baseline, rate.difference, rate.allowed) == (None, 0.25, None, 0.05)
