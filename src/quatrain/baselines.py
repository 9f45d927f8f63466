"""scores, stored baseline, rules -> verdict: a pure judgement that anybody can repeat."""

import math
from collections.abc import Mapping, Sequence
from reprlib import repr as shortened
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Direction = Literal["higher", "lower", "near"]
Status = Literal[
    "ok",
    "better",
    "worse",
    "below goal",
    "below floor",
    "missing",
    "not finite",
    "no baseline",
    "stale",
]
Scores = Mapping[str, float | None]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]

PASSED = ("ok", "better")
SCHEMA = 1


class Record(BaseModel):
    """Holds what a JSON file stores: unknown keys and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_by_name=True)


class Rule(Record):
    """Holds how a metric is judged under one preset; references are names of other metrics."""

    metric: str
    direction: Direction
    tolerance: float
    goal: float | None
    lower_references: tuple[str, ...] = Field(alias="floors", strict=False)
    upper_references: tuple[str, ...] = Field(alias="ceilings", strict=False)


class Gated(NamedTuple):
    """Holds how a model wants one of its metrics judged, under all presets."""

    metric: str
    direction: Direction
    # How far a score may be on the bad side of the stored value.
    tolerance: float
    # Preset -> fixed bound of the design; not used by the direction `near`.
    goals: Mapping[str, float]
    # Metrics of the same evaluation that the score must beat.
    lower_references: tuple[str, ...] = ()
    # Metrics of the same evaluation that the score approaches; it may pass them.
    upper_references: tuple[str, ...] = ()

    def under(self, preset: str) -> Rule:
        """Returns the rule for one preset."""
        return Rule(
            metric=self.metric,
            direction=self.direction,
            tolerance=self.tolerance,
            goal=self.goals.get(preset),
            lower_references=self.lower_references,
            upper_references=self.upper_references,
        )


class StoredMetric(Record):
    """Holds one metric of a baseline file."""

    value: FiniteNumber
    direction: Direction
    tolerance: FiniteNumber = Field(ge=0)
    goal: FiniteNumber | None
    lower_references: dict[str, FiniteNumber] = Field(alias="floors")
    upper_references: dict[str, FiniteNumber] = Field(alias="ceilings")
    interval: tuple[FiniteNumber, FiniteNumber] | None = Field(default=None, strict=False)

    def differs_from(self, rule: Rule) -> str | None:
        """Returns the first key whose stored setting is not the rule's; None if all agree."""
        settings = {
            "direction": (self.direction, rule.direction),
            "tolerance": (self.tolerance, rule.tolerance),
            "goal": (self.goal, rule.goal),
            "floors": (set(self.lower_references), set(rule.lower_references)),
            "ceilings": (set(self.upper_references), set(rule.upper_references)),
        }
        return next((key for key, (stored, ruled) in settings.items() if stored != ruled), None)


class PresetBaseline(Record):
    """Holds the baseline of one preset: metric -> what is stored, and the run it comes from."""

    metrics: dict[str, StoredMetric] = Field(min_length=1)
    provenance: dict[str, Any]


class BaselineFile(BaseModel):
    """Holds a baseline file; a preset is checked when it is used."""

    model_config = ConfigDict(strict=True, frozen=True)
    schema_version: Literal[1] = Field(alias="schema")
    presets: dict[str, Any]


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
    # Half width of the difference's 95 % interval; a side without interval counts as exact.
    half: float | None


NO_RULE = Line(
    metric="-",
    status="missing",
    value=None,
    baseline=None,
    direction="-",
    tolerance=0.0,
    why="nothing is judged: the model's evaluation names no metric",
)


class BaselineError(ValueError):
    """Says that a baseline file does not have the form that `promote` writes."""


def entry_of(rule: Rule, scores: Mapping[str, float]) -> dict[str, Any]:
    """Returns what a baseline file stores of a metric when these scores become the baseline.

    `interval` is stored if the scores have `METRIC_low` and `METRIC_high`.
    """
    entry: dict[str, Any] = {
        "value": scores[rule.metric],
        "direction": rule.direction,
        "tolerance": rule.tolerance,
        "goal": rule.goal,
        "floors": {name: scores[name] for name in rule.lower_references},
        "ceilings": {name: scores[name] for name in rule.upper_references},
    }
    ends = [f"{rule.metric}_low", f"{rule.metric}_high"]
    if scores.keys() >= set(ends):
        entry["interval"] = [scores[end] for end in ends]
    return entry


def judge(scores: Scores, baseline: Any, rules: Sequence[Rule], preset: str) -> Verdict:
    """Compares scores with the baseline of this preset; what is missing or not finite fails.

    If `METRIC_low` and `METRIC_high` give a 95 % interval, a difference counts only if it is larger
    than the tolerance and than the half width of the difference's interval, sqrt(h_old² + h_new²).

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
    for metric in sorted(stored.keys() - {rule.metric for rule in rules}):
        line = Line(
            metric=metric,
            status="stale",
            value=scores.get(metric),
            baseline=stored[metric].value,
            direction=stored[metric].direction,
            tolerance=stored[metric].tolerance,
            why=f"{metric} is in the baseline, "
            "but the model's evaluation does not judge it any more",
        )
        lines.append(line)
    if not lines:
        lines = [NO_RULE]
    passed = all(line.status in PASSED for line in lines)
    return Verdict(passed, tuple(lines))


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
    if rule.metric not in scores:
        return "missing", "is judged, but the evaluation did not report it"
    value = scores[rule.metric]
    if value is None or not math.isfinite(value):
        return "not finite", "is NaN or infinite"
    if stored is None:
        return "no baseline", f"{value:.6g} has no entry in the baseline yet"
    if stored.direction != rule.direction:
        model_says = f"the model says {rule.direction!r}"
        return "stale", f"is {stored.direction!r} in the baseline, but {model_says}"
    status, why = _compare_with(stored, rule, value, _half_width(rule.metric, stored, scores))
    differing = stored.differs_from(rule)
    if status in PASSED and differing is not None:
        return "stale", f"has another {differing} in the baseline than in the model"
    return status, why


def _compare_with(
    stored: StoredMetric, rule: Rule, value: float, noise: float
) -> tuple[Status, str]:
    sign = -1.0 if rule.direction == "lower" else 1.0
    gain = sign * (value - stored.value)
    if rule.direction == "near":
        gain = -abs(value - stored.value)
    is_clear = abs(gain) > max(rule.tolerance, noise)
    better = "nearer" if rule.direction == "near" else rule.direction
    limits = f"{better} is better, tolerance {rule.tolerance:g}"
    if noise:
        limits += f", noise {noise:.3g}"
    baseline = f"baseline {stored.value:.6g} ({limits})"
    if is_clear and gain < 0:
        return "worse", f"{value:.6g} is {-gain:.3g} worse than {baseline}"
    side = f"({rule.direction} is better)"
    if rule.goal is not None and rule.direction != "near" and sign * (value - rule.goal) < 0:
        return "below goal", f"{value:.6g} misses the goal {rule.goal:g} {side}"
    for name, reference in stored.lower_references.items():
        if sign * (value - reference) <= 0:
            return "below floor", f"{value:.6g} does not beat {name} {reference:.6g} {side}"
    if is_clear:
        offer = "`make promote` would store it"
        return "better", f"{value:.6g} is {gain:.3g} better than {baseline}; {offer}"
    return "ok", f"{value:.6g} holds {baseline}"


def _half_width(metric: str, stored: StoredMetric, scores: Scores) -> float:
    """Returns half the width of the difference's interval; 0 if neither side has an interval."""
    intervals = [(scores.get(f"{metric}_low"), scores.get(f"{metric}_high"))]
    if stored.interval is not None:
        intervals.append(stored.interval)
    return math.hypot(
        *((high - low) / 2 for low, high in intervals if low is not None and high is not None)
    )


def compare(
    verdict: Verdict, stored: Mapping[str, StoredMetric], scores: Scores
) -> tuple[Comparison, ...]:
    """Compares each judged score with the metrics of the baseline that judged it."""
    comparisons = []
    for line in verdict.lines:
        new = line.value if line.value is not None and math.isfinite(line.value) else None
        difference = None
        half = None
        if line.baseline is not None and new is not None:
            difference = new - line.baseline
            half = _half_width(line.metric, stored[line.metric], scores) or None
        comparisons.append(
            Comparison(line.metric, line.status, line.baseline, new, difference, half)
        )
    return tuple(comparisons)


def preset_of(baseline: Any, preset: str) -> PresetBaseline | None:
    """Returns the baseline of a preset; None if there is no file or no entry.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    if baseline is None:
        return None
    where: tuple[str, ...] = ()
    try:
        file = BaselineFile.model_validate(baseline)
        if preset not in file.presets:
            return None
        where = ("presets", preset)
        return PresetBaseline.model_validate(file.presets[preset])
    except ValidationError as error:
        first = error.errors()[0]
    key = ".".join(map(str, (*where, *first["loc"]))) or "the whole"
    value = "" if first["type"] == "missing" else f" is {shortened(first['input'])}"
    raise BaselineError(f"{key}{value}: {first['msg']}")
