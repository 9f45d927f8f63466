"""a model's rules, scores -> what a baseline file stores, and back."""

import math
from collections.abc import Mapping
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from quatrain.seeds import SEEDS_OF_INTERVAL

Direction = Literal["higher", "lower", "near"]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]

SCHEMA = 1
# Relative error of a sum or mean of many numbers.
ROUNDING = 1e-9


Scalar = bool | int | float | str | None


class Record(BaseModel):
    """Holds what a JSON file stores: unknown keys and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_by_name=True)


class Rule(NamedTuple):
    """Holds how a model wants one of its metrics judged."""

    metric: str
    direction: Direction
    # Differences up to this count as none: from the stored value, and from a lower reference.
    tolerance: float
    # Preset -> fixed bound of the design; not used by the direction `near`.
    goals: Mapping[str, float]
    # Metrics of the same evaluation that the score must beat.
    lower_references: tuple[str, ...] = ()
    # Metrics of the same evaluation that the score approaches; it may pass them.
    upper_references: tuple[str, ...] = ()
    # One line for a newcomer: what it measures, and which value means what.
    meaning: str = ""
    # Reference -> its name in words.
    names: Mapping[str, str] = MappingProxyType({})
    # Least and greatest value that are possible; None where there is no bound.
    least: float | None = None
    most: float | None = None
    # That of the preset which is judged.
    goal: float | None = None

    def under(self, preset: str) -> "Rule":
        """Returns the rule for one preset."""
        return self._replace(goal=self.goals.get(preset))


def _without_values(references: Any) -> Any:
    """Returns the names of references, which older files map to values."""
    return tuple(references) if isinstance(references, dict) else references


ReferenceNames = Annotated[tuple[str, ...], BeforeValidator(_without_values), Field(strict=False)]


class StoredMetric(Record):
    """Holds one metric of a baseline file: a value, and the rule that it was stored under.

    Of references it has the names alone: a score is judged by those of its own evaluation.
    """

    value: FiniteNumber
    direction: Direction
    tolerance: FiniteNumber = Field(ge=0)
    goal: FiniteNumber | None
    lower_references: ReferenceNames = Field(alias="floors")
    upper_references: ReferenceNames = Field(alias="ceilings")
    interval: tuple[FiniteNumber, FiniteNumber] | None = Field(default=None, strict=False)
    # Learners behind the interval; None in older files.
    seeds: FiniteNumber | None = None

    @property
    def fault(self) -> str | None:
        """Returns what is wrong with the interval; None if there is none, or nothing is wrong."""
        if self.interval is None:
            return None
        seeds = 1 if self.seeds is None else self.seeds
        return fault_of_interval(self.value, *self.interval, seeds)

    @property
    def interval_over_seeds(self) -> tuple[float, float] | None:
        """Returns the interval; None if it is of fewer than SEEDS_OF_INTERVAL seeds."""
        return self.interval if (self.seeds or 0) >= SEEDS_OF_INTERVAL else None

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
    provenance: dict[str, Scalar]


class BaselineFile(BaseModel):
    """Holds a baseline file; a preset is checked when it is used."""

    model_config = ConfigDict(strict=True, frozen=True)
    schema_version: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    presets: dict[str, Any]


class BaselineError(ValueError):
    """Says that a baseline file does not have the form that `promote` writes."""


def fault_of_interval(
    value: float, low: float | None, high: float | None, seeds: float | None
) -> str | None:
    """Returns why this is no 95 % interval of a value over so many learners; None if it is one.

    Its ends are finite, in order and hold the value, up to the rounding of its last digits.
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return f"{low} to {high} is not finite"
    if low > high:
        return f"{low:.6g} to {high:.6g} is reversed"
    slack = ROUNDING * max(abs(low), abs(high))
    if not low - slack <= value <= high + slack:
        return f"{low:.6g} to {high:.6g} does not hold {value:.6g}"
    if seeds is None or not (math.isfinite(seeds) and seeds >= 1 and seeds == int(seeds)):
        return f"{low:.6g} to {high:.6g} is one of {seeds} seeds"
    return None


def entry_of(rule: Rule, scores: Mapping[str, float | None]) -> dict[str, Any]:
    """Returns what a baseline file stores of a metric when these scores become the baseline.

    `interval` and its `seeds` are stored if the scores have `METRIC_low` and `METRIC_high`.
    """
    entry: dict[str, Any] = {
        "value": scores[rule.metric],
        "direction": rule.direction,
        "tolerance": rule.tolerance,
        "goal": rule.goal,
        "floors": sorted(rule.lower_references),
        "ceilings": sorted(rule.upper_references),
    }
    ends = [f"{rule.metric}_low", f"{rule.metric}_high"]
    if scores.keys() >= set(ends):
        entry |= {"interval": [scores[end] for end in ends], "seeds": scores.get("seeds")}
    return entry


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
    raise BaselineError(f"{key}{value}: {first['msg'].removeprefix('Value error, ')}")
