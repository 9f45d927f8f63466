"""scores, stored baseline, rules -> verdict: pure, so that anybody can repeat the judgement."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

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

PASSED = ("ok", "better")
SCHEMA = 1
RULE = ("direction", "tolerance", "goal", "floors", "ceilings")
ENTRY = {"value", *RULE}


class Rule(NamedTuple):
    """How a metric is judged under one preset; floors and ceilings are names of other metrics."""

    metric: str
    direction: Direction
    tolerance: float
    goal: float | None
    floors: tuple[str, ...]
    ceilings: tuple[str, ...]


class Gated(NamedTuple):
    """How a model wants one of its metrics judged.

    tolerance: how far a score may be on the bad side of the stored value. goals: preset -> fixed bound of the design,
    which `near` does not know. floors, ceilings: names of other metrics of the same evaluation between which the score
    stands; a score must beat its floors, and may pass its ceilings.
    """

    metric: str
    direction: Direction
    tolerance: float
    goals: Mapping[str, float]
    floors: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()

    def under(self, preset: str) -> Rule:
        """The rule for one preset."""
        return Rule(
            self.metric,
            self.direction,
            self.tolerance,
            self.goals.get(preset),
            self.floors,
            self.ceilings,
        )


class Line(NamedTuple):
    """The judgement of one metric."""

    metric: str
    status: Status
    value: float | None
    baseline: float | None
    direction: str
    tolerance: float
    why: str


class Verdict(NamedTuple):
    """All judgements of one evaluation, and whether nothing is broken."""

    passed: bool
    lines: tuple[Line, ...]


class Comparison(NamedTuple):
    """A judged metric beside its stored value; None where a side is missing or not finite.

    difference: new - old. half: half the width of its 95 % interval, where at least one side tells its own; the other
    then counts as exact.
    """

    metric: str
    status: Status
    old: float | None
    new: float | None
    difference: float | None
    half: float | None


NOTHING = Line(
    "-",
    "missing",
    None,
    None,
    "-",
    0.0,
    "nothing is judged: the model's evaluation names no metric",
)


class BaselineError(ValueError):
    """A baseline file does not have the form that `promote` writes."""


def entry_of(rule: Rule, scores: Mapping[str, float]) -> dict[str, Any]:
    """What a baseline stores of a metric when these scores become the baseline; `interval` where there is one."""
    low, high = f"{rule.metric}_low", f"{rule.metric}_high"
    return {
        "value": scores[rule.metric],
        "direction": rule.direction,
        "tolerance": rule.tolerance,
        "goal": rule.goal,
        "floors": {name: scores[name] for name in rule.floors},
        "ceilings": {name: scores[name] for name in rule.ceilings},
        **({"interval": [scores[low], scores[high]]} if low in scores and high in scores else {}),
    }


def judge(scores: Scores, baseline: Any, rules: Sequence[Rule], preset: str) -> Verdict:
    """Compare scores with the baseline's entry for this preset; what is missing or not finite is broken, never a pass.

    Where `METRIC_low` and `METRIC_high` tell a 95 % interval, a difference counts only if it is larger
    than the tolerance and than the interval of the difference (the root of the sum of squares of both half widths).

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    entry = preset_of(baseline, preset)
    stored = {} if entry is None else entry["metrics"]
    unruled = sorted(stored.keys() - {rule.metric for rule in rules})
    lines = (
        *(_line(rule, stored.get(rule.metric), scores) for rule in rules),
        *(_unruled(metric, stored[metric], scores.get(metric)) for metric in unruled),
    )
    if entry is None:
        why = f"preset {preset!r} has no baseline yet"
        lines = tuple(
            line._replace(why=why) if line.status == "no baseline" else line for line in lines
        )
    lines = lines or (NOTHING,)
    return Verdict(all(line.status in PASSED for line in lines), lines)


def _unruled(metric: str, stored: Mapping[str, Any], value: float | None) -> Line:
    why = f"{metric} is in the baseline, but the model's evaluation does not judge it any more"
    return Line(
        metric, "stale", value, stored["value"], stored["direction"], stored["tolerance"], why
    )


def _line(rule: Rule, stored: Mapping[str, Any] | None, scores: Scores) -> Line:
    status, why = _judged(rule, stored, scores)
    reference = stored["value"] if stored else None
    value = scores.get(rule.metric)
    return Line(
        rule.metric,
        status,
        value,
        reference,
        rule.direction,
        rule.tolerance,
        f"{rule.metric} {why}",
    )


def _judged(rule: Rule, stored: Mapping[str, Any] | None, scores: Scores) -> tuple[Status, str]:
    if rule.metric not in scores:
        return "missing", "is judged, but the evaluation did not report it"
    value = scores[rule.metric]
    if value is None or not math.isfinite(value):
        return "not finite", "is NaN or infinite"
    if stored is None:
        return "no baseline", f"{value:.6g} has no entry in the baseline yet"
    if stored["direction"] != rule.direction:
        return (
            "stale",
            f"is {stored['direction']!r} in the baseline, but the model says {rule.direction!r}",
        )
    status, why = _compared(rule, stored, scores, value)
    differing = [key for key in RULE if _plain(stored[key]) != _plain(getattr(rule, key))]
    if status in PASSED and differing:
        return "stale", f"has another {differing[0]} in the baseline than in the model"
    return status, why


def _plain(setting: Any) -> Any:
    """Floors and ceilings by name alone, for the rule knows no values."""
    return sorted(setting) if isinstance(setting, Mapping | tuple) else setting


def _compared(
    rule: Rule, stored: Mapping[str, Any], scores: Scores, value: float
) -> tuple[Status, str]:
    reference, sign = stored["value"], -1.0 if rule.direction == "lower" else 1.0
    gain = -abs(value - reference) if rule.direction == "near" else sign * (value - reference)
    noise = _noise(rule.metric, stored, scores)
    clear = abs(gain) > max(rule.tolerance, noise)
    against = f"baseline {reference:.6g} ({rule.direction} is better, tolerance {rule.tolerance:g}"
    against = against.replace("near is", "nearer is") + (f", noise {noise:.3g})" if noise else ")")
    if clear and gain < 0:
        return "worse", f"{value:.6g} is {-gain:.3g} worse than {against}"
    if rule.goal is not None and rule.direction != "near" and sign * (value - rule.goal) < 0:
        return (
            "below goal",
            f"{value:.6g} misses the goal {rule.goal:g} ({rule.direction} is better)",
        )
    for name, floor in stored["floors"].items():
        if sign * (value - floor) <= 0:
            return (
                "below floor",
                f"{value:.6g} does not beat {name} {floor:.6g} ({rule.direction} is better)",
            )
    if clear:
        return (
            "better",
            f"{value:.6g} is {gain:.3g} better than {against}; `make promote` would store it",
        )
    return "ok", f"{value:.6g} holds {against}"


def _noise(metric: str, stored: Mapping[str, Any], scores: Scores) -> float:
    """Half width of the difference's interval; 0 where both sides are one number each."""
    bounds = [
        (scores.get(f"{metric}_low"), scores.get(f"{metric}_high")),
        stored.get("interval", (None, None)),
    ]
    return math.hypot(
        *((high - low) / 2 for low, high in bounds if low is not None and high is not None)
    )


def compare(
    verdict: Verdict, stored: Mapping[str, Mapping[str, Any]], scores: Scores
) -> tuple[Comparison, ...]:
    """What storing these scores would change; `stored` are the metrics of the baseline that judged them."""
    return tuple(_beside(line, stored.get(line.metric, {}), scores) for line in verdict.lines)


def _beside(line: Line, stored: Mapping[str, Any], scores: Scores) -> Comparison:
    new = line.value if is_number(line.value) else None
    if line.baseline is None or new is None:
        return Comparison(line.metric, line.status, line.baseline, new, None, None)
    noise = _noise(line.metric, stored, scores)
    return Comparison(
        line.metric, line.status, line.baseline, new, new - line.baseline, noise or None
    )


def preset_of(baseline: Any, preset: str) -> Mapping[str, Any] | None:
    """The checked entry of a preset: {"metrics": ..., "provenance": ...}, or None where there is none.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    if baseline is None:
        return None
    if not isinstance(baseline, Mapping) or not isinstance(baseline.get("presets"), Mapping):
        raise BaselineError("must be an object with schema, model and presets")
    if baseline.get("schema") != SCHEMA:
        raise BaselineError(f"has schema {baseline.get('schema')!r}, but this code reads {SCHEMA}")
    if preset not in baseline["presets"]:
        return None
    entry = baseline["presets"][preset]
    if not isinstance(entry, Mapping) or entry.keys() != {"metrics", "provenance"}:
        raise BaselineError(f"presets.{preset} must have exactly the keys metrics and provenance")
    if not isinstance(entry["metrics"], Mapping) or not entry["metrics"]:
        raise BaselineError(f"presets.{preset}.metrics is empty: it would judge nothing")
    for name, stored in entry["metrics"].items():
        _check_entry(f"presets.{preset}.metrics.{name}", stored)
    return entry


def _check_entry(where: str, stored: Any) -> None:
    if not isinstance(stored, Mapping) or stored.keys() - {"interval"} != ENTRY:
        raise BaselineError(
            f"{where} must have exactly the keys {', '.join(sorted(ENTRY))} (and may have interval)"
        )
    if stored["direction"] not in ("higher", "lower", "near"):
        raise BaselineError(
            f"{where}.direction is {stored['direction']!r}; allowed: higher, lower, near"
        )
    numbers = {"value": stored["value"], "tolerance": stored["tolerance"]}
    numbers |= {} if stored["goal"] is None else {"goal": stored["goal"]}
    for kind in ("floors", "ceilings"):
        if not isinstance(stored[kind], Mapping):
            raise BaselineError(f"{where}.{kind} must be an object of numbers")
        numbers |= {f"{kind}.{name}": number for name, number in stored[kind].items()}
    interval = stored.get("interval", [0, 0])
    if not isinstance(interval, list) or len(interval) != 2:
        raise BaselineError(f"{where}.interval must be [low, high]")
    numbers |= {"interval.0": interval[0], "interval.1": interval[1]}
    for name, number in numbers.items():
        if not is_number(number):
            raise BaselineError(f"{where}.{name} is {number!r}, not a finite number")
    if stored["tolerance"] < 0:
        raise BaselineError(f"{where}.tolerance is {stored['tolerance']}, below 0")


def is_number(value: Any) -> bool:
    """A finite number that a float can hold, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
