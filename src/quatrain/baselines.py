"""scores, stored baseline -> verdict: pure, so that the same judgement can be repeated by anybody."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Direction = Literal["higher", "lower", "near"]
Status = Literal["ok", "better", "worse", "below goal", "below floor", "missing", "not finite", "no baseline"]
PASSED = ("ok", "better")


class Gated(NamedTuple):
    """How a model wants one of its metrics judged.

    tolerance: how far a score may be on the bad side of the stored value. goals: preset -> fixed bound of the design.
    floors, ceilings: names of other metrics of the same evaluation between which the score stands.
    """

    metric: str
    direction: Direction
    tolerance: float
    goals: Mapping[str, float]
    floors: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()


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


class BaselineError(ValueError):
    """A baseline file does not have the form that `promote` writes."""


SCHEMA = 1
ENTRY = {"value", "direction", "tolerance", "goal", "floors", "ceilings"}


def entry_of(gated: Gated, scores: Mapping[str, float], preset: str) -> dict[str, Any]:
    """What a baseline stores of a metric when these scores become the baseline."""
    return {
        "value": scores[gated.metric],
        "direction": gated.direction,
        "tolerance": gated.tolerance,
        "goal": gated.goals.get(preset),
        "floors": {name: scores[name] for name in gated.floors if name in scores},
        "ceilings": {name: scores[name] for name in gated.ceilings if name in scores},
    }


def judge(scores: Mapping[str, float | None], baseline: Mapping[str, Any] | None, preset: str) -> Verdict:
    """Compare scores with the baseline's entry for this preset; what is missing or not finite is broken, never a pass.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    entry = preset_of(baseline, preset)
    if entry is None:
        why = f"no baseline for preset {preset!r}; write the first with `make promote` (PRESET={preset})"
        return Verdict(False, (Line("-", "no baseline", None, None, "-", 0.0, why),))
    lines = tuple(_line(metric, entry["metrics"][metric], scores) for metric in sorted(entry["metrics"]))
    return Verdict(all(line.status in PASSED for line in lines), lines)


def preset_of(baseline: Mapping[str, Any] | None, preset: str) -> Mapping[str, Any] | None:
    """The checked entry of a preset: {"metrics": ..., "provenance": ...}, or None where there is none.

    Raises:
        BaselineError: the baseline does not have the stored form.
    """
    if baseline is None:
        return None
    if baseline.get("schema") != SCHEMA:
        raise BaselineError(f"schema is {baseline.get('schema')!r}, this version reads {SCHEMA}")
    entry = baseline.get("presets", {}).get(preset)
    if entry is None:
        return None
    if not entry.get("metrics"):
        raise BaselineError(f"presets.{preset}.metrics is empty: it would judge nothing")
    for name, stored in entry["metrics"].items():
        _check_entry(f"presets.{preset}.metrics.{name}", stored)
    return entry


def _check_entry(where: str, stored: Any) -> None:
    if not isinstance(stored, Mapping) or stored.keys() != ENTRY:
        raise BaselineError(f"{where} must have exactly the keys {', '.join(sorted(ENTRY))}")
    if stored["direction"] not in ("higher", "lower", "near"):
        raise BaselineError(f"{where}.direction is {stored['direction']!r}; allowed: higher, lower, near")
    bounds = {"value": stored["value"], "tolerance": stored["tolerance"]}
    if stored["goal"] is not None:
        bounds["goal"] = stored["goal"]
    bounds |= {f"{kind}.{name}": v for kind in ("floors", "ceilings") for name, v in stored[kind].items()}
    for name, value in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BaselineError(f"{where}.{name} is {value!r}, not a finite number")
    if stored["tolerance"] < 0:
        raise BaselineError(f"{where}.tolerance is {stored['tolerance']}, below 0")


def _line(metric: str, stored: Mapping[str, Any], scores: Mapping[str, float | None]) -> Line:
    value, reference, tolerance = scores.get(metric), stored["value"], stored["tolerance"]
    sign = -1.0 if stored["direction"] == "lower" else 1.0

    def line(status: Status, why: str) -> Line:
        return Line(metric, status, value, reference, stored["direction"], tolerance, why)

    if metric in scores and value is None:
        return line("not finite", f"{metric} is NaN or infinite")
    if value is None:
        return line("missing", f"{metric} is judged but the evaluation did not report it")
    if not math.isfinite(value):
        return line("not finite", f"{metric} is {value}")
    gain = sign * (value - reference)
    missed = abs(value - reference) if stored["direction"] == "near" else -gain
    if missed > tolerance:
        return line(
            "worse",
            f"{metric} {value:.4g} is {missed:.4g} worse than baseline {reference:.4g} (tolerance {tolerance:g})",
        )
    goal = stored["goal"]
    if goal is not None and stored["direction"] != "near" and sign * (value - goal) < 0:
        return line("below goal", f"{metric} {value:.4g} misses the goal {goal:g}")
    for name, floor in stored["floors"].items():
        if sign * (value - floor) <= 0:
            return line("below floor", f"{metric} {value:.4g} does not beat {name} {floor:.4g}")
    if gain > tolerance and stored["direction"] != "near":
        return line(
            "better",
            f"{metric} {value:.4g} beats baseline {reference:.4g} by {gain:.4g}; `make promote` would store it",
        )
    return line("ok", f"{metric} {value:.4g} holds baseline {reference:.4g} (tolerance {tolerance:g})")
