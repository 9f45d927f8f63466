"""scores, stored baseline, rules -> verdict: a pure judgement that anybody can repeat."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

from quatrain.baselines import Record, Rule, StoredMetric, fault_of_interval, preset_of
from quatrain.seeds import SEEDS_OF_INTERVAL

Status = Literal[
    "ok",
    "better",
    "worse",
    "below goal",
    "below floor",
    "missing",
    "not finite",
    "bad interval",
    "no baseline",
    "bad baseline",
    "stale",
]
Scores = Mapping[str, float | None]
# Ends of an interval, and the number of seeds behind it.
Side = tuple[float | None, float | None, float | None]

PASSED = ("ok", "better")
# Most that an interval widens a tolerance.
WIDEST = 2.0


class Line(Record):
    """Holds the judgement of one metric."""

    metric: str
    status: Status
    value: float | None
    baseline: float | None
    direction: str
    tolerance: float
    why: str


class Verdict(NamedTuple):
    """Holds all judgements of one evaluation, and whether every metric passed."""

    passed: bool
    lines: tuple[Line, ...]


class Comparison(NamedTuple):
    """Holds a judged metric and its stored value; None if a side is missing or not finite."""

    metric: str
    status: Status
    old: float | None
    new: float | None
    # new - old.
    difference: float | None
    # Half width of the difference's 95 % interval; a side of fewer than SEEDS_OF_INTERVAL seeds
    # counts as exact, and of two such sides there is none.
    half: float | None
    # Difference up to which two scores count as equal.
    allowed: float


NO_RULE = Line(
    metric="-",
    status="missing",
    value=None,
    baseline=None,
    direction="-",
    tolerance=0.0,
    why="nothing is judged: the model's evaluation names no metric",
)


def judge(scores: Scores, baseline: Any, rules: Sequence[Rule], preset: str) -> Verdict:
    """Compares scores with the baseline of this preset; what is missing or not finite fails.

    A difference counts if it is larger than `allowance`. Lower and upper references are scores of
    the same evaluation; a score must pass each lower one by more than `allowance`.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    entry = preset_of(baseline, preset)
    stored = {} if entry is None else entry.metrics
    lines = [_judge_metric(rule, stored.get(rule.metric), scores) for rule in rules]
    if entry is None:
        why = {"why": f"preset {preset!r} has no baseline yet"}
        lines = [
            line.model_copy(update=why) if line.status == "no baseline" else line for line in lines
        ]
    dropped = sorted(stored.keys() - {rule.metric for rule in rules})
    lines += [_dropped_metric(name, stored[name], scores) for name in dropped]
    if not lines:
        lines = [NO_RULE]
    passed = all(line.status in PASSED for line in lines)
    return Verdict(passed, tuple(lines))


def _dropped_metric(metric: str, stored: StoredMetric, scores: Scores) -> Line:
    return Line(
        metric=metric,
        status="stale",
        value=scores.get(metric),
        baseline=stored.value,
        direction=stored.direction,
        tolerance=stored.tolerance,
        why=f"{metric} is in the baseline, but the model's evaluation does not judge it any more",
    )


def _judge_metric(rule: Rule, stored: StoredMetric | None, scores: Scores) -> Line:
    status, why = _status_of(rule, stored, scores)
    return Line(
        metric=rule.metric,
        status=status,
        value=scores.get(rule.metric),
        baseline=None if stored is None else stored.value,
        direction=rule.direction,
        tolerance=rule.tolerance,
        why=f"{rule.metric} {why}",
    )


def _status_of(rule: Rule, stored: StoredMetric | None, scores: Scores) -> tuple[Status, str]:
    problem = _problem_of_scores(rule, scores)
    if problem is not None:
        return problem
    value = scores[rule.metric]
    assert value is not None
    if stored is None:
        return "no baseline", f"{value:.6g} has no entry in the baseline yet"
    if stored.direction != rule.direction:
        model_says = f"the model says {rule.direction!r}"
        return "stale", f"is {stored.direction!r} in the baseline, but {model_says}"
    if stored.fault is not None:
        remedy = "`git checkout` restores the file in baselines/, `make promote` stores another"
        return "bad baseline", f"has no interval in the baseline: {stored.fault}; {remedy}"
    status, why = _compare_with(stored, rule, value, scores)
    differing = stored.differs_from(rule)
    if status in PASSED and differing is not None:
        return "stale", f"has another {differing} in the baseline than in the model"
    return status, why


def _problem_of_scores(rule: Rule, scores: Scores) -> tuple[Status, str] | None:
    """Returns why these scores cannot be compared; None if all that is needed is there."""
    if rule.metric not in scores:
        return "missing", "is judged, but the evaluation did not report it"
    if not is_finite(scores[rule.metric]):
        return "not finite", "is NaN or infinite"
    for name in (*rule.lower_references, *rule.upper_references):
        if name not in scores:
            return "missing", f"is judged beside {name}, but the evaluation did not report that"
        if not is_finite(scores[name]):
            return "not finite", f"is judged beside {name}, which is NaN or infinite"
    fault = fault_of_scores(rule.metric, scores)
    if fault is not None:
        return "bad interval", f"has no interval: {fault}; mend it in the model's evaluate.py"
    return None


def _compare_with(
    stored: StoredMetric, rule: Rule, value: float, scores: Scores
) -> tuple[Status, str]:
    sign = -1.0 if rule.direction == "lower" else 1.0
    gain = sign * (value - stored.value)
    if rule.direction == "near":
        gain = -abs(value - stored.value)
    allowed = allowance(rule.tolerance, _half_width(rule.metric, stored, scores))
    better = "nearer" if rule.direction == "near" else rule.direction
    limits = f"{better} is better, tolerance {rule.tolerance:g}"
    if allowed > rule.tolerance:
        limits += f", widened to {allowed:.3g} by noise"
    baseline = f"baseline {stored.value:.6g} ({limits})"
    if gain < -allowed:
        return "worse", f"{value:.6g} is {-gain:.3g} worse than {baseline}"
    side = f"({rule.direction} is better)"
    if rule.goal is not None and rule.direction != "near" and sign * (value - rule.goal) < 0:
        return "below goal", f"{value:.6g} misses the goal {rule.goal:g} {side}"
    for name in rule.lower_references:
        reference = scores[name]
        if reference is not None and sign * (value - reference) <= allowed:
            beaten = f"{name} {reference:.6g} by more than {allowed:.3g}"
            return "below floor", f"{value:.6g} does not beat {beaten} {side}"
    if gain > allowed:
        offer = "`make promote` would store it"
        return "better", f"{value:.6g} is {gain:.3g} better than {baseline}; {offer}"
    return "ok", f"{value:.6g} holds {baseline}"


def allowance(tolerance: float, half: float) -> float:
    """Returns the difference up to which two scores count as equal: the tolerance or, if larger,
    half the interval of the difference, but at most WIDEST times the tolerance.
    """
    return min(max(tolerance, half), WIDEST * tolerance)


def _half_width(metric: str, stored: StoredMetric, scores: Scores) -> float:
    """Returns half the width of the difference's 95 % interval, sqrt(h_old² + h_new²).

    0 if neither side has an interval over seeds.
    """
    sides = [None if stored.fault else stored.interval_over_seeds]
    if fault_of_scores(metric, scores) is None:
        sides.append(interval_over_seeds(metric, scores))
    # high - low may be too large for a number
    return math.hypot(*(side[1] / 2 - side[0] / 2 for side in sides if side is not None))


def interval_over_seeds(metric: str, scores: Scores) -> tuple[float, float] | None:
    """Returns the 95 % interval of a score; None if an end is missing or it is of fewer than
    SEEDS_OF_INTERVAL seeds.
    """
    low, high, seeds = _side(metric, scores)
    if low is None or high is None or (seeds or 0) < SEEDS_OF_INTERVAL:
        return None
    return low, high


def fault_of_scores(metric: str, scores: Scores) -> str | None:
    """Returns what is wrong with the interval `METRIC_low` to `METRIC_high` of a finite score; None
    if there is none, or nothing is wrong.
    """
    value = scores[metric]
    if value is None or scores.keys().isdisjoint((f"{metric}_low", f"{metric}_high")):
        return None
    return fault_of_interval(value, *_side(metric, scores))


def _side(metric: str, scores: Scores) -> Side:
    return scores.get(f"{metric}_low"), scores.get(f"{metric}_high"), scores.get("seeds")


def is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def compare(
    verdict: Verdict, stored: Mapping[str, StoredMetric], scores: Scores
) -> tuple[Comparison, ...]:
    """Compares each judged score with the metrics of the baseline that judged it."""
    comparisons = []
    for line in verdict.lines:
        new = line.value if is_finite(line.value) else None
        difference = None
        half = None
        if line.baseline is not None and new is not None:
            difference = new - line.baseline
            half = _half_width(line.metric, stored[line.metric], scores) or None
        allowed = allowance(line.tolerance, half or 0.0)
        comparisons.append(
            Comparison(line.metric, line.status, line.baseline, new, difference, half, allowed)
        )
    return tuple(comparisons)
