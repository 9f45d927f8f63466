"""sweeps/NAME.yaml -> a search space over params.yaml, or one line that says what is wrong with it.

Nothing here imports Ray, Optuna or a framework: a mistake is refused within two seconds.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline.scaling.records import Trial
from pipeline.storage.params_file import read_input
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.presets import parse, read_raw
from quatrain.registry import MODELS, load
from quatrain.section import Section
from quatrain.validation import describe, nearest, overlaid, tuples, validate

NAME = re.compile(r"[a-z][a-z0-9_]*")
Number = Annotated[int | float, Field(allow_inf_nan=False)]
Values = dict[str, Any]


def json_text(value: Any) -> str:
    """Returns a text that is equal only for equal values of equal types: 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


class Dimension(Section):
    """Holds where a key is searched: a range `between` two numbers, or one `of` some values."""

    between: tuple[Number, Number] | None = Field(
        default=None, description="two numbers, the lower one first; whole ones make whole values"
    )
    scale: Literal["linear", "log"] = Field(
        default="linear", description="log: equal ratios are equally likely"
    )
    points: int | None = Field(
        default=None, ge=2, le=1000, description="with search: grid, how many values of a range"
    )
    of: tuple[Any, ...] | None = Field(default=None, description="two or more values of any kind")

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Dimension":
        if (self.between is None) == (self.of is None):
            raise ValueError("write either `between: [low, high]` or `of: [value, ...]`")
        if self.of is not None:
            if len(set(self.labels)) < max(2, len(self.of)):
                raise ValueError("`of` needs two or more values, none of them twice")
            return self
        if self.low >= self.high:
            raise ValueError(f"the range is empty: {self.low} is not below {self.high}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"a log scale needs positive numbers, not {self.low}")
        return self

    @property
    def low(self) -> float:
        assert self.between is not None
        return self.between[0]

    @property
    def high(self) -> float:
        assert self.between is not None
        return self.between[1]

    @property
    def is_whole(self) -> bool:
        return self.between is not None and all(type(end) is int for end in self.between)

    @property
    def labels(self) -> list[str]:
        return [json_text(choice) for choice in self.of or ()]

    @property
    def choices(self) -> list[Any]:
        """Returns the choices with lists in place of tuples, as in a file."""
        return [json.loads(label) for label in self.labels]

    @property
    def ends(self) -> Sequence[Any]:
        """Returns the values that must be valid: both ends of a range, or every choice."""
        return self.choices if self.of is not None else (self.low, self.high)

    def grid(self) -> list[Any]:
        """Returns `points` values from end to end, or all choices."""
        if self.of is not None:
            return self.choices
        assert self.points is not None
        shares = [index / (self.points - 1) for index in range(self.points)]
        if self.scale == "log":
            values = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            values = [self.low + (self.high - self.low) * share for share in shares]
        values[-1] = self.high
        return list(dict.fromkeys(map(round if self.is_whole else float, values)))


class Asha(Section):
    kind: Literal["asha"]
    first: int = Field(ge=1, description="steps before the first comparison")
    factor: int = Field(ge=2, le=100, description="one of so many trials goes on")


class NoSchedule(Section):
    kind: Literal["none"]


class Confirm(Section):
    top: int = Field(ge=1, le=100, description="how many of the best trials run again")
    seed: int = Field(ge=0, lt=2**32, description="`seed` of params.yaml then, another than before")
    seeds: int = Field(ge=1, le=1024, description="learners of each")


class Sweep(Section):
    """Holds sweeps/NAME.yaml."""

    model: str
    preset: str = Field(description="`default` or a file of presets/: what trials start from")
    judge: str = Field(description="a gated metric; its direction is the gate's")
    watch: str = Field(
        description="a train metric with the direction of `judge`, by which ASHA compares trials"
    )
    seeds: int = Field(ge=1, le=1024, description="learners of each trial")
    trials: int = Field(ge=1, le=100_000, description="how many points are tried beside the start")
    seed: int = Field(ge=0, lt=2**32, description="of the search, not of the trials")
    search: Literal["tpe", "random", "grid"]
    schedule: Annotated[Asha | NoSchedule, Field(discriminator="kind")]
    confirm: Confirm | None = Field(description="rerun the best: best of N is partly luck; or null")
    cpus: int = Field(ge=1, le=256, description="CPUs of a trial, and its `threads`")
    gpus: float = Field(ge=0, le=64, description="GPUs of a trial; a part of one shares it")
    retries: int = Field(ge=0, le=100, description="how often a trial on a lost node starts again")
    space: dict[str, Dimension] = Field(min_length=1, description="key of the model -> where")

    @field_validator("model")
    @classmethod
    def _model_is_there(cls, name: str) -> str:
        if name not in MODELS:
            raise ValueError(f"no such model{nearest(name, list(MODELS))}; {', '.join(MODELS)}")
        return name

    @model_validator(mode="after")
    def _gpus_are_whole_or_a_part_of_one(self) -> "Sweep":
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus = {self.gpus}: several must be a whole number")
        return self

    @model_validator(mode="after")
    def _grid_has_as_many_points_as_trials(self) -> "Sweep":
        if self.search != "grid":
            return self
        without = [key for key, dimension in self.space.items() if not _has_grid(dimension)]
        if without:
            raise ValueError(f"search: grid needs `points` in space.{without[0]}")
        count = reduce(lambda product, each: product * len(each.grid()), self.space.values(), 1)
        if count != self.trials:
            raise ValueError(f"the grid has {count} points; write trials: {count}")
        return self


class Space(NamedTuple):
    """Holds a sweep with what its trials are made of.

    raw: params.yaml under the sweep's preset, not validated. is_higher_better: the direction of
    the judged metric.
    """

    name: str
    sweep: Sweep
    raw: dict[str, Any]
    is_higher_better: bool
    root: Path

    def trial_raw(
        self, values: Mapping[str, Any], seed: int | None = None, seeds: int | None = None
    ) -> dict[str, Any]:
        """Returns params.yaml with these values; seed and seeds are those of the search if None."""
        sweep = self.sweep
        shared: dict[str, Any] = {
            "seed": self.raw["seed"] if seed is None else seed,
            "device": "cuda" if sweep.gpus else "cpu",
            "threads": sweep.cpus,
        }
        section: dict[str, Any] = {"seeds": sweep.seeds if seeds is None else seeds}
        for key, value in values.items():
            section = overlaid(section, _nested(key, value))
        return overlaid(self.raw, shared | {sweep.model: section})

    def params(
        self, values: Mapping[str, Any], seed: int | None = None, seeds: int | None = None
    ) -> Params:
        """Returns the validated params of a trial.

        Raises:
            ConfigError: these values do not go together.
        """
        raw = self.trial_raw(values, seed, seeds)
        return validate(raw, lambda name: read_input(self.root, str(name)))

    def start(self) -> Values:
        """Returns the preset's own values of the searched keys."""
        return {key: _value_at(self.raw[self.sweep.model], key) for key in self.sweep.space}

    def changes(self, trial: Trial) -> Values:
        """Returns the values by which a trial differs from its preset: none for the start."""
        return {} if json_text(trial.values) == json_text(self.start()) else trial.values

    def raw_of(self, trial: Trial) -> dict[str, Any]:
        """Returns params.yaml of a trial, whatever the sweep's file says now about confirming."""
        return self.trial_raw(self.changes(trial), trial.seed, trial.seeds)

    def params_of(self, trial: Trial) -> Params:
        """Returns the validated params of a trial.

        Raises:
            ConfigError: its values do not go together.
        """
        return self.params(self.changes(trial), trial.seed, trial.seeds)

    def grid(self) -> Iterator[Values]:
        """Yields the points of a grid, the last key fastest."""
        keys = self.sweep.space
        for point in itertools.product(*(dimension.grid() for dimension in keys.values())):
            yield dict(zip(keys, point, strict=True))


def read_space(root: Path, path: Path) -> Space:
    """Returns the search space of a file, with every end of every range validated.

    Raises:
        ConfigError: the file, the preset, a key, a range or the judged metric cannot be used.
    """
    name = path.stem
    if not NAME.fullmatch(name) or name == "default" or path.suffix != ".yaml":
        raise ConfigError(
            f"{path.name}: a sweep is named as the preset that it writes: "
            "small letters, digits and _, then .yaml, and not default"
        )
    if not path.is_file():
        names = sorted(str(other) for other in path.parent.glob("*.yaml"))
        others = f"; known: {', '.join(names)}" if names else ""
        raise ConfigError(f"{path} is not there{nearest(str(path), names)}{others}")
    sweep = parse_sweep(path)
    if sweep.preset == name:
        raise ConfigError(
            f"{path.name}: preset = {name!r}: a sweep cannot start from the preset that it writes; "
            "copy that one under another name"
        )
    try:
        raw = read_raw(root, sweep.preset)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: preset: {error}") from None
    direction = _direction(path.name, sweep, raw.get(sweep.model))
    space = Space(name, sweep, raw, direction == "higher", root)
    _check_ends(path.name, space)
    return space


def parse_sweep(path: Path) -> Sweep:
    """Returns the content of a sweep's file.

    Raises:
        ConfigError: it is not YAML, or not of this form.
    """
    content = parse(path)
    try:
        return Sweep.model_validate(tuples(content))
    except ValidationError as error:
        raise ConfigError(describe(error, content, Sweep, path.name)) from None


def _has_grid(dimension: Dimension) -> bool:
    return dimension.of is not None or dimension.points is not None


def _direction(file: str, sweep: Sweep, section: Mapping[str, Any] | None) -> str:
    """Returns `higher` or `lower`, from the rules of the model with this section."""
    rules = {rule.metric: rule.direction for rule in load(sweep.model, section).rules.GATED}
    if sweep.judge not in rules:
        names = sorted(rules)
        raise ConfigError(
            f"{file}: judge = {sweep.judge!r}: {sweep.model} is not judged by it"
            f"{nearest(sweep.judge, names)}; judged: {', '.join(names)}"
        )
    direction = rules[sweep.judge]
    if direction == "near":
        raise ConfigError(
            f"{file}: judge = {sweep.judge!r} is held near a value; name one that has a best end"
        )
    return direction


def _check_ends(file: str, space: Space) -> None:
    sweep = space.sweep
    params = _checked(f"{file}: with seeds = {sweep.seeds}", space, {})
    if sweep.confirm is not None:
        place = f"{file}: with confirm.seeds = {sweep.confirm.seeds}"
        _checked(place, space, {}, sweep.confirm.seeds)
    for key, dimension in sweep.space.items():
        if key == "seeds" or not all(key.split(".")):
            raise ConfigError(f"{file}: space.{key}: is no key to search; remove or correct it")
        for value in dimension.ends:
            _checked(f"{file}: space.{key} at {value!r}", space, {key: value})
    if sweep.confirm is not None and sweep.confirm.seed == space.raw["seed"]:
        raise ConfigError(
            f"{file}: confirm.seed = {sweep.confirm.seed} is the seed of the search's trials; "
            "another one shows what was luck"
        )
    if sweep.gpus and params.devices > max(1, sweep.gpus):
        raise ConfigError(
            f"{file}: gpus = {sweep.gpus:g}: params.yaml wants devices: {params.devices}; "
            "give a trial as many GPUs, or start from a preset with devices: 1"
        )
    steps = getattr(params, sweep.model).train.steps
    if sweep.schedule.kind == "asha" and sweep.schedule.first >= steps:
        raise ConfigError(
            f"{file}: schedule.first = {sweep.schedule.first}: a trial has only {steps:,} steps; "
            "compare earlier, or write schedule: {kind: none}"
        )


def _checked(place: str, space: Space, values: Values, seeds: int | None = None) -> Params:
    """Returns the params of a trial; an error begins with `place`."""
    try:
        return space.params(values, seeds=seeds)
    except ConfigError as error:
        reason = str(error).removeprefix("params.yaml: ")
        raise ConfigError(f"{place}: {reason}") from None


def _nested(key: str, value: Any) -> dict[str, Any]:
    """Returns `a.b`, 1 as {a: {b: 1}}."""
    nested = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return dict(nested)


def _value_at(section: Any, key: str) -> Any:
    """Returns the value at `a.b`; None where a section on the way is not there."""
    for part in key.split("."):
        section = section.get(part) if isinstance(section, Mapping) else None
    return section
