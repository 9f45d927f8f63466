"""scores, stored baseline, rules -> judgement: a pure function that anybody can repeat."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

from quatrain.baselines import NOTHING, Predecessor, Rule, StoredMetric, preset_of
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
Interval = tuple[float, float]

PASSED = ("ok", "better")
Verdict = Literal["passed", "undecided", "below goal", "worse"]
# From the best to the worst.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
# Most that an interval widens a tolerance.
WIDEST = 2.0
# Relative error of a sum or mean of many numbers.
ROUNDING = 1e-9


class Line(NamedTuple):
    """Holds how one metric is judged; a side that is missing or not finite is None."""

    # "-" if no metric is judged.
    metric: str
    status: Status
    why: str
    rule: Rule | None = None
    value: float | None = None
    baseline: float | None = None
    # 95 % intervals of value and baseline, over at least SEEDS_OF_INTERVAL seeds.
    interval: Interval | None = None
    baseline_interval: Interval | None = None

    @property
    def difference(self) -> float | None:
        """Returns value - baseline."""
        if self.value is None or self.baseline is None:
            return None
        return self.value - self.baseline

    @property
    def half(self) -> float | None:
        """Returns half the width of the difference's 95 % interval, sqrt(h_old² + h_new²).

        A side without an interval counts as exact; None if neither has one.
        """
        sides = [side for side in (self.interval, self.baseline_interval) if side is not None]
        if self.difference is None or not sides:
            return None
        # high - low may be too large for a number
        return math.hypot(*(high / 2 - low / 2 for low, high in sides)) or None

    @property
    def allowed(self) -> float:
        """Returns the difference up to which two scores count as equal: the tolerance or, if
        larger, `half`, but at most WIDEST times the tolerance.
        """
        tolerance = 0.0 if self.rule is None else self.rule.tolerance
        return min(max(tolerance, self.half or 0.0), WIDEST * tolerance)


class Judgement(NamedTuple):
    """Holds a model's scores against the baseline of a preset."""

    preset: str
    lines: tuple[Line, ...]
    model: str = ""
    scores: Scores = NOTHING
    # What the learner's manifest, and the baseline, say of the runs that they come from.
    learner: Mapping[str, Any] = NOTHING
    provenance: Mapping[str, Any] = NOTHING
    # The baselines before that one, the newest first.
    history: tuple[Predecessor, ...] = ()
    # What differs between the runs of scores and baseline, a line each.
    changes: tuple[str, ...] = ()

    @property
    def broken(self) -> list[Line]:
        return [line for line in self.lines if line.status not in PASSED]

    @property
    def passed(self) -> bool:
        return not self.broken

    @property
    def verdict(self) -> Verdict:
        """Returns the answer in a word; `undecided` where nothing valid could be compared."""
        if self.passed:
            return "passed"
        if "worse" in self.statuses:
            return "worse"
        return "below goal" if self.statuses & {"below goal", "below floor"} else "undecided"

    @property
    def statuses(self) -> set[Status]:
        """Returns how scores are broken."""
        return {line.status for line in self.broken}

    @property
    def only_lacks_a_baseline(self) -> bool:
        """Returns whether all that is broken is that no baseline is stored yet."""
        return self.statuses == {"no baseline"}


def judge(scores: Scores, baseline: Any, rules: Sequence[Rule], preset: str) -> Judgement:
    """Compares scores with the baseline of this preset; what is missing or not finite fails.

    A difference counts if it is larger than `Line.allowed`. Lower and upper references are scores
    of the same evaluation; a score must pass each lower one by more than that.

    baseline: content of a baseline file; None if there is none.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    entry = preset_of(baseline, preset)
    stored = {} if entry is None else entry.metrics
    lines = [_judge_metric(rule, stored.get(rule.metric), scores) for rule in rules]
    if entry is None:
        why = f"preset {preset!r} has no baseline yet"
        lines = [line._replace(why=why) if line.status == "no baseline" else line for line in lines]
    why = "is in the baseline, but the model's evaluation does not judge it any more"
    for name in sorted(stored.keys() - {rule.metric for rule in rules}):
        value, before = scores.get(name), stored[name].value
        lines.append(Line(name, "stale", f"{name} {why}", value=value, baseline=before))
    if not lines:
        why = "nothing is judged: the model's evaluation names no metric"
        lines = [Line("-", "missing", why)]
    judgement = Judgement(preset, tuple(lines), scores=scores)
    if entry is None:
        return judgement
    return judgement._replace(provenance=entry.provenance, history=entry.history)


def _judge_metric(rule: Rule, stored: StoredMetric | None, scores: Scores) -> Line:
    before = NOTHING if stored is None else stored.as_scores(rule.metric)
    value, interval = _measured(rule.metric, scores)
    line = Line(rule.metric, "ok", "", rule, value, interval=interval)
    baseline, interval = _measured(rule.metric, before)
    line = line._replace(baseline=baseline, baseline_interval=interval)
    status, why = _status_of(line, rule, stored, scores)
    return line._replace(status=status, why=f"{rule.metric} {why}")


def _measured(metric: str, scores: Scores) -> tuple[float | None, Interval | None]:
    """Returns a score, and its interval if there is a valid one; None if it is not finite."""
    value = scores.get(metric)
    if not is_finite(value):
        return None, None
    is_valid = fault_of_interval(metric, scores) is None
    return value, interval_over_seeds(metric, scores) if is_valid else None


def _status_of(
    line: Line, rule: Rule, stored: StoredMetric | None, scores: Scores
) -> tuple[Status, str]:
    problem = _problem_of_scores(rule, scores)
    if problem is not None:
        return problem
    if stored is None:
        return "no baseline", f"{line.value:.6g} has no entry in the baseline yet"
    if stored.direction != rule.direction:
        model_says = f"the model says {rule.direction!r}"
        return "stale", f"is {stored.direction!r} in the baseline, but {model_says}"
    fault = fault_of_interval(rule.metric, stored.as_scores(rule.metric))
    if fault is not None:
        remedy = "`git checkout` restores the file in baselines/, a forced promotion stores another"
        return "bad baseline", f"has no interval in the baseline: {fault}; {remedy}"
    status, why = _compare(line, rule, scores)
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
    for name in rule.references:
        if name not in scores:
            return "missing", f"is judged beside {name}, but the evaluation did not report that"
        if not is_finite(scores[name]):
            return "not finite", f"is judged beside {name}, which is NaN or infinite"
    fault = fault_of_interval(rule.metric, scores)
    if fault is not None:
        return "bad interval", f"has no interval: {fault}; mend it in the model's evaluate.py"
    return None


def _compare(line: Line, rule: Rule, scores: Scores) -> tuple[Status, str]:
    value, stored = line.value, line.baseline
    assert value is not None
    assert stored is not None
    sign = -1.0 if rule.direction == "lower" else 1.0
    gain = -abs(value - stored) if rule.direction == "near" else sign * (value - stored)
    allowed = line.allowed
    better = "nearer" if rule.direction == "near" else rule.direction
    limits = f"{better} is better, tolerance {rule.tolerance:g}"
    if allowed > rule.tolerance:
        limits += f", widened to {allowed:.3g} by noise"
    baseline = f"baseline {stored:.6g} ({limits})"
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


def interval_over_seeds(metric: str, scores: Scores) -> Interval | None:
    """Returns the 95 % interval of a score; None if an end is missing or it is of fewer than
    SEEDS_OF_INTERVAL seeds.
    """
    low, high = (scores.get(f"{metric}_{end}") for end in ("low", "high"))
    if low is None or high is None or (scores.get("seeds") or 0) < SEEDS_OF_INTERVAL:
        return None
    return low, high


def fault_of_interval(metric: str, scores: Scores) -> str | None:
    """Returns why `METRIC_low` to `METRIC_high` is no 95 % interval of a finite score over `seeds`
    learners; None if there is none, or nothing is wrong.

    Its ends are finite, in order and hold the value, up to the rounding of its last digits.
    """
    value, seeds = scores[metric], scores.get("seeds")
    low, high = (scores.get(f"{metric}_{end}") for end in ("low", "high"))
    if value is None or scores.keys().isdisjoint((f"{metric}_low", f"{metric}_high")):
        return None
    if not (is_finite(low) and is_finite(high)):
        return f"{low} to {high} is not finite"
    if low > high:
        return f"{low:.6g} to {high:.6g} is reversed"
    slack = ROUNDING * max(abs(low), abs(high))
    if not low - slack <= value <= high + slack:
        return f"{low:.6g} to {high:.6g} does not hold {value:.6g}"
    if not (is_finite(seeds) and seeds >= 1 and seeds == int(seeds)):
        return f"{low:.6g} to {high:.6g} is one of {seeds} seeds"
    return None


def is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
