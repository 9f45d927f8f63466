"""Tests the judgement case by case: only existing, finite and good enough scores pass."""

import copy
from typing import Any

import pytest

from quatrain.baselines import (
    BaselineError,
    Comparison,
    Gated,
    Verdict,
    compare,
    entry_of,
    judge,
    preset_of,
)

ACCURACY = Gated(
    "accuracy", "higher", 0.02, {"default": 0.9}, ("floor_random", "floor_constant"), ("oracle",)
)
ERROR = Gated("error", "lower", 0.3, {"default": 4.0}, ("floor_error",))
RATE = Gated("rate", "near", 0.05, {})
GATED = (ACCURACY, ERROR, RATE)

SCORES = {
    "accuracy": 0.95,
    "error": 2.5,
    "rate": 0.25,
    "floor_random": 0.1,
    "floor_constant": 0.3,
    "floor_error": 7.0,
    "oracle": 1.0,
}


def baseline(preset: str = "default", **changed: float) -> dict[str, Any]:
    """Returns the file that promote would write for SCORES with changes."""
    metrics = {gated.metric: entry_of(gated.under(preset), SCORES | changed) for gated in GATED}
    return {
        "schema": 1,
        "model": "toy",
        "presets": {preset: {"metrics": metrics, "provenance": {}}},
    }


def judge_scores(stored: Any = None, preset: str = "default", **changed: float | None) -> Verdict:
    rules = [gated.under(preset) for gated in GATED]
    return judge(SCORES | changed, stored or baseline(preset), rules, preset)


def line_of(verdict: Verdict, metric: str) -> tuple[str, str]:
    line = next(line for line in verdict.lines if line.metric == metric)
    return line.status, line.why


def altered(*path: str, to: Any) -> dict[str, Any]:
    """Returns the baseline with one value below presets.default.metrics changed."""
    stored = baseline()
    place = stored["presets"]["default"]["metrics"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return stored


def test_the_scores_that_were_promoted_hold_their_own_baseline():
    verdict = judge_scores()
    assert verdict.passed
    assert [(line.metric, line.status) for line in verdict.lines] == [
        ("accuracy", "ok"),
        ("error", "ok"),
        ("rate", "ok"),
    ]
    assert line_of(verdict, "accuracy")[1] == (
        "accuracy 0.95 holds baseline 0.95 (higher is better, tolerance 0.02)"
    )


@pytest.mark.parametrize(
    ("metric", "value", "status", "why"),
    [
        (
            "accuracy",
            0.931,
            "ok",
            "accuracy 0.931 holds baseline 0.95 (higher is better, tolerance 0.02)",
        ),
        (
            "accuracy",
            0.92,
            "worse",
            "accuracy 0.92 is 0.03 worse than baseline 0.95 (higher is better, tolerance 0.02)",
        ),
        (
            "accuracy",
            0.98,
            "better",
            "accuracy 0.98 is 0.03 better than baseline 0.95 (higher is better, tolerance 0.02); "
            "`make promote` would store it",
        ),
        ("error", 2.79, "ok", "error 2.79 holds baseline 2.5 (lower is better, tolerance 0.3)"),
        (
            "error",
            2.9,
            "worse",
            "error 2.9 is 0.4 worse than baseline 2.5 (lower is better, tolerance 0.3)",
        ),
        (
            "error",
            1.5,
            "better",
            "error 1.5 is 1 better than baseline 2.5 (lower is better, tolerance 0.3); "
            "`make promote` would store it",
        ),
        ("rate", 0.29, "ok", "rate 0.29 holds baseline 0.25 (nearer is better, tolerance 0.05)"),
        (
            "rate",
            0.31,
            "worse",
            "rate 0.31 is 0.06 worse than baseline 0.25 (nearer is better, tolerance 0.05)",
        ),
        (
            "rate",
            0.19,
            "worse",
            "rate 0.19 is 0.06 worse than baseline 0.25 (nearer is better, tolerance 0.05)",
        ),
        ("accuracy", None, "not finite", "accuracy is NaN or infinite"),
        ("accuracy", float("nan"), "not finite", "accuracy is NaN or infinite"),
        ("error", float("-inf"), "not finite", "error is NaN or infinite"),
    ],
)
def test_a_score_is_judged_in_its_direction(
    metric: str, value: float | None, status: str, why: str
):
    verdict = judge_scores(**{metric: value})
    assert line_of(verdict, metric) == (status, why)
    assert verdict.passed == (status in ("ok", "better"))


def test_a_score_that_holds_a_low_baseline_must_still_reach_the_goal():
    verdict = judge_scores(baseline(accuracy=0.89), accuracy=0.885)
    assert line_of(verdict, "accuracy") == (
        "below goal",
        "accuracy 0.885 misses the goal 0.9 (higher is better)",
    )
    assert not verdict.passed
    assert line_of(judge_scores(baseline(error=4.4), error=4.5), "error")[0] == "below goal"


def test_goals_belong_to_their_preset():
    assert judge_scores(baseline("smoke", accuracy=0.6), "smoke", accuracy=0.6).passed


def test_a_score_that_only_equals_a_floor_is_broken():
    verdict = judge_scores(baseline("smoke", accuracy=0.3), "smoke", accuracy=0.3)
    assert line_of(verdict, "accuracy") == (
        "below floor",
        "accuracy 0.3 does not beat floor_constant 0.3 (higher is better)",
    )
    assert not verdict.passed
    assert (
        line_of(judge_scores(baseline("smoke", error=7.1), "smoke", error=7.1), "error")[0]
        == "below floor"
    )


def test_a_ceiling_may_be_passed():
    assert judge_scores(baseline(oracle=0.9)).passed


def test_a_metric_that_the_evaluation_lost_is_broken():
    scores = {name: value for name, value in SCORES.items() if name != "error"}
    verdict = judge(scores, baseline(), [gated.under("default") for gated in GATED], "default")
    assert line_of(verdict, "error") == (
        "missing",
        "error is judged, but the evaluation did not report it",
    )
    assert not verdict.passed


def test_a_metric_that_the_baseline_lacks_is_broken():
    stored = baseline()
    del stored["presets"]["default"]["metrics"]["rate"]
    verdict = judge_scores(stored)
    assert line_of(verdict, "rate") == ("no baseline", "rate 0.25 has no entry in the baseline yet")
    assert not verdict.passed


def test_a_metric_that_only_the_baseline_judges_is_broken():
    verdict = judge(
        SCORES, baseline(), [ACCURACY.under("default"), ERROR.under("default")], "default"
    )
    assert line_of(verdict, "rate") == (
        "stale",
        "rate is in the baseline, but the model's evaluation does not judge it any more",
    )
    assert not verdict.passed


def test_a_preset_without_baseline_is_broken():
    for stored in (baseline("smoke"), None):
        verdict = judge(SCORES, stored, [gated.under("default") for gated in GATED], "default")
        assert not verdict.passed
        assert [(line.value, line.status, line.why) for line in verdict.lines] == [
            (SCORES[gated.metric], "no baseline", "preset 'default' has no baseline yet")
            for gated in GATED
        ]


def test_without_any_rule_nothing_passes():
    verdict = judge(SCORES, None, [], "default")
    assert not verdict.passed
    assert line_of(verdict, "-") == (
        "missing",
        "nothing is judged: the model's evaluation names no metric",
    )


def test_another_direction_than_the_model_says_is_broken_whatever_the_score():
    for value in (0.5, 0.95, 0.99):
        assert line_of(
            judge_scores(altered("accuracy", "direction", to="lower"), accuracy=value), "accuracy"
        ) == (
            "stale",
            "accuracy is 'lower' in the baseline, but the model says 'higher'",
        )


@pytest.mark.parametrize(
    ("path", "to", "what"),
    [
        (("tolerance",), 0.5, "tolerance"),
        (("goal",), 0.2, "goal"),
        (("goal",), None, "goal"),
        (("floors",), {"floor_random": 0.1}, "floors"),
        (("ceilings",), {}, "ceilings"),
    ],
)
def test_a_rule_loosened_by_hand_is_broken(path: tuple[str, ...], to: Any, what: str):
    verdict = judge_scores(altered("accuracy", *path, to=to))
    assert line_of(verdict, "accuracy") == (
        "stale",
        f"accuracy has another {what} in the baseline than in the model",
    )
    assert not verdict.passed


def test_a_baseline_raised_by_hand_beyond_reach_is_broken():
    assert line_of(judge_scores(altered("accuracy", "value", to=1.5)), "accuracy") == (
        "worse",
        "accuracy 0.95 is 0.55 worse than baseline 1.5 (higher is better, tolerance 0.02)",
    )


# Several learners: means with intervals.


def interval(mean: float, half: float) -> dict[str, float]:
    return {"accuracy": mean, "accuracy_low": mean - half, "accuracy_high": mean + half}


@pytest.mark.parametrize(
    ("mean", "status"),
    [(0.96, "ok"), (0.911, "ok"), (0.909, "ok"), (0.84, "worse"), (0.999, "ok"), (1.06, "better")],
)
def test_a_difference_counts_only_if_it_is_larger_than_its_interval(mean: float, status: str):
    """Half widths 0.03 and 0.04: a difference of independent means has 0.05."""
    stored = baseline(**interval(0.95, 0.03))
    assert stored["presets"]["default"]["metrics"]["accuracy"]["interval"] == pytest.approx(
        [0.92, 0.98]
    )
    actual, why = line_of(judge_scores(stored, **interval(mean, 0.04)), "accuracy")
    assert actual == status
    assert "tolerance 0.02, noise 0.05)" in why


def test_a_difference_within_the_tolerance_holds_however_sure_it_is():
    assert judge_scores(baseline(**interval(0.95, 1e-4)), **interval(0.94, 1e-4)).passed


def test_an_interval_on_one_side_only_is_used():
    assert judge_scores(baseline(), **interval(0.92, 0.04)).passed
    assert not judge_scores(baseline(), **interval(0.92, 0.025)).passed


def test_a_goal_is_a_goal_however_wide_the_interval_is():
    assert line_of(judge_scores(baseline(), **interval(0.89, 0.2)), "accuracy")[0] == "below goal"


# Baselines of another form.


def top(**changes: Any) -> Any:
    return baseline() | changes


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([], "the whole is []: Input should be a valid dictionary"),
        ({}, "schema: Field required"),
        (top(presets=[]), "presets is []: Input should be a valid dictionary"),
        (top(schema=0), "schema is 0: Input should be 1"),
        (top(schema=2), "schema is 2: Input should be 1"),
        (top(schema="1"), "schema is '1': Input should be 1"),
        (
            top(presets={"default": 5}),
            "presets.default is 5: Input should be a valid dictionary",
        ),
        (
            top(presets={"default": {"metrics": {}, "provenance": {}}}),
            "presets.default.metrics is {}: Dictionary should have at least 1 item",
        ),
        (
            top(presets={"default": {"metrics": [1], "provenance": {}}}),
            "presets.default.metrics is [1]: Input should be a valid dictionary",
        ),
        (altered("rate", to=None), "metrics.rate is None: Input should be a valid dictionary"),
        (
            altered("rate", "extra", to=1),
            "metrics.rate.extra is 1: Extra inputs are not permitted",
        ),
        (
            altered("rate", "direction", to="up"),
            "rate.direction is 'up': Input should be 'higher', 'lower' or 'near'",
        ),
        (
            altered("rate", "direction", to=["near"]),
            "rate.direction is ['near']: Input should be 'higher', 'lower' or 'near'",
        ),
        (altered("rate", "value", to=None), "rate.value is None: Input should be a valid number"),
        (
            altered("rate", "value", to="0.25"),
            "rate.value is '0.25': Input should be a valid number",
        ),
        (altered("rate", "value", to=True), "rate.value is True: Input should be a valid number"),
        (
            altered("rate", "value", to=float("nan")),
            "rate.value is nan: Input should be a finite number",
        ),
        (altered("rate", "value", to=10**400), "00: Input should be a valid number"),
        (
            altered("rate", "tolerance", to=float("inf")),
            "rate.tolerance is inf: Input should be a finite number",
        ),
        (
            altered("rate", "tolerance", to=-0.01),
            "rate.tolerance is -0.01: Input should be greater than or equal to 0",
        ),
        (
            altered("accuracy", "goal", to="high"),
            "accuracy.goal is 'high': Input should be a valid number",
        ),
        (
            altered("accuracy", "floors", to=[0.1]),
            "accuracy.floors is [0.1]: Input should be a valid dictionary",
        ),
        (
            altered("accuracy", "floors", "floor_random", to=None),
            "accuracy.floors.floor_random is None: Input should be a valid number",
        ),
        (altered("accuracy", "interval", to=[0.9]), "accuracy.interval.1: Field required"),
        (
            altered("accuracy", "interval", to=[0.9, None]),
            "accuracy.interval.1 is None: Input should be a valid number",
        ),
    ],
)
def test_a_baseline_of_another_form_judges_nothing(stored: Any, why: str):
    with pytest.raises(BaselineError) as caught:
        judge(SCORES, stored, [gated.under("default") for gated in GATED], "default")
    assert why in str(caught.value)


def test_judging_changes_no_input():
    stored = baseline()
    before = copy.deepcopy(stored)
    judge_scores(stored, accuracy=0.1)
    assert stored == before


# What storing scores would change.


def compared(stored: Any = None, **changed: float | None) -> dict[str, Comparison]:
    baseline_of = stored or baseline()
    entry = preset_of(baseline_of, "default")
    assert entry is not None
    verdict = judge_scores(baseline_of, **changed)
    comparisons = compare(verdict, entry.metrics, SCORES | changed)
    return {comparison.metric: comparison for comparison in comparisons}


def test_each_judged_metric_stands_beside_its_stored_value():
    comparisons = compared(accuracy=0.99, error=2.9)
    assert list(comparisons) == ["accuracy", "error", "rate"]
    assert comparisons["accuracy"][:4] == ("accuracy", "better", 0.95, 0.99)
    assert comparisons["accuracy"].difference == pytest.approx(0.04)
    assert comparisons["error"][:4] == ("error", "worse", 2.5, 2.9)
    assert comparisons["error"].difference == pytest.approx(0.4)
    assert comparisons["rate"] == Comparison("rate", "ok", 0.25, 0.25, 0.0, None)


def test_a_difference_has_the_interval_of_two_independent_means():
    """Half widths 0.03 and 0.04, together 0.05; of one side alone its own."""
    both = compared(baseline(**interval(0.95, 0.03)), **interval(0.99, 0.04))
    assert both["accuracy"].half == pytest.approx(0.05)
    assert compared(baseline(), **interval(0.99, 0.04))["accuracy"].half == pytest.approx(0.04)
    assert compared(baseline(**interval(0.95, 0.03)), accuracy=0.99)[
        "accuracy"
    ].half == pytest.approx(0.03)
    assert both["error"].half is None


def test_the_interval_that_is_shown_is_the_noise_that_judges():
    stored, changes = baseline(**interval(0.95, 0.03)), interval(0.99, 0.04)
    half = compared(stored, **changes)["accuracy"].half
    assert f"noise {half:.3g})" in line_of(judge_scores(stored, **changes), "accuracy")[1]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_not_finite_has_no_difference(value: float | None):
    assert compared(accuracy=value)["accuracy"] == Comparison(
        "accuracy", "not finite", 0.95, None, None, None
    )


def test_what_only_one_side_knows_has_no_difference():
    stored = baseline()
    del stored["presets"]["default"]["metrics"]["rate"]
    assert compared(stored)["rate"] == Comparison("rate", "no baseline", None, 0.25, None, None)
    scores = {name: value for name, value in SCORES.items() if name != "error"}
    entry = preset_of(baseline(), "default")
    assert entry is not None
    verdict = judge(scores, baseline(), [ERROR.under("default")], "default")
    assert compare(verdict, entry.metrics, scores)[0] == Comparison(
        "error", "missing", 2.5, None, None, None
    )
