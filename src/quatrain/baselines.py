"""a model's rules, scores -> what a baseline file stores, and back."""

from collections.abc import Mapping
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Direction = Literal["higher", "lower", "near"]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]

SCHEMA = 1
NOTHING: Mapping[str, Any] = MappingProxyType({})

Scalar = bool | int | float | str | None


class Record(BaseModel):
    """Holds what a JSON file stores: unknown keys and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Rule(NamedTuple):
    """Says how one metric of a model is judged.

    tolerance: differences up to this count as none, from the stored value and from a lower
    reference. goals: preset -> fixed bound of the design, not used by the direction `near`; goal:
    that of the preset which is judged. lower_references: metrics of the same evaluation that the
    score must beat, with their names in words; upper_references: those that it approaches, and may
    pass. meaning: one line for a newcomer: what it measures, and which value means what. least,
    most: values that are possible; None where there is no bound.
    """

    metric: str
    direction: Direction
    tolerance: float
    goals: Mapping[str, float] = NOTHING
    lower_references: Mapping[str, str] = NOTHING
    upper_references: Mapping[str, str] = NOTHING
    least: float | None = None
    most: float | None = None
    meaning: str = ""
    goal: float | None = None

    def means(self, meaning: str) -> "Rule":
        return self._replace(meaning=meaning)

    def under(self, preset: str) -> "Rule":
        """Returns the rule for one preset."""
        return self._replace(goal=self.goals.get(preset))

    @property
    def references(self) -> dict[str, str]:
        return {**self.lower_references, **self.upper_references}

    @property
    def settings(self) -> dict[str, Any]:
        """Returns what a baseline file stores of the rule."""
        return {
            "direction": self.direction,
            "tolerance": self.tolerance,
            "goal": self.goal,
            "floors": sorted(self.lower_references),
            "ceilings": sorted(self.upper_references),
        }


def _without_values(references: Any) -> Any:
    """Returns the names of references, which older files map to values."""
    return tuple(references) if isinstance(references, dict | list) else references


References = Annotated[tuple[str, ...], BeforeValidator(_without_values)]


class StoredMetric(Record):
    """Holds one metric of a baseline file: a value, and the settings of its rule at that time.

    Of references it has the names alone: a score is judged by those of its own evaluation.
    """

    value: FiniteNumber
    direction: Direction
    tolerance: FiniteNumber = Field(ge=0)
    goal: FiniteNumber | None
    floors: References
    ceilings: References
    interval: tuple[FiniteNumber, FiniteNumber] | None = Field(default=None, strict=False)
    # Learners behind the interval; None in older files.
    seeds: FiniteNumber | None = None

    def as_scores(self, metric: str) -> dict[str, float | None]:
        """Returns the value and its interval as an evaluation reports them."""
        seeds = 1.0 if self.seeds is None else self.seeds
        scores: dict[str, float | None] = {metric: self.value, "seeds": seeds}
        if self.interval is not None:
            scores[f"{metric}_low"], scores[f"{metric}_high"] = self.interval
        return scores

    def differs_from(self, rule: Rule) -> str | None:
        """Returns the first key whose stored setting is not the rule's; None if all agree."""
        stored = {**dict(self), "floors": sorted(self.floors), "ceilings": sorted(self.ceilings)}
        return next((key for key, ruled in rule.settings.items() if stored[key] != ruled), None)


class PresetBaseline(Record):
    """Holds the baseline of one preset: metric -> what is stored, and the run it comes from.

    recording: channel -> quantiles of the recording that was learned from, if it was one.
    """

    metrics: dict[str, StoredMetric] = Field(min_length=1)
    provenance: dict[str, Scalar]
    recording: dict[str, list[FiniteNumber]] | None = None


class BaselineFile(BaseModel):
    """Holds a baseline file; a preset is checked when it is used."""

    model_config = ConfigDict(strict=True, frozen=True)
    schema_version: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    presets: dict[str, Any]


class BaselineError(ValueError):
    """Says that a baseline file does not have the form that `promote` writes."""


def entry_of(rule: Rule, scores: Mapping[str, float | None]) -> dict[str, Any]:
    """Returns what a baseline file stores of a metric when these scores become the baseline.

    `interval` and its `seeds` are stored if the scores have `METRIC_low` and `METRIC_high`.
    """
    entry = {"value": scores[rule.metric], **rule.settings}
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
