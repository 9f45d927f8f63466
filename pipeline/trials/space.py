"""sweeps/NAME.yaml -> a search space over params.yaml, or one line that says what is wrong with it.

Nothing here imports Optuna or a framework: a mistake is refused within a second.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline.storage.params_file import read_input
from pipeline.trials.trial import value_at
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
        low, high = self.range
        if low >= high:
            raise ValueError(f"the range is empty: {low} is not below {high}")
        if self.scale == "log" and low <= 0:
            raise ValueError(f"a log scale needs positive numbers, not {low}")
        return self

    @property
    def range(self) -> tuple[float, float]:
        assert self.between is not None, "a dimension `of` values has no range"
        return self.between

    @property
    def is_whole(self) -> bool:
        return self.between is not None and all(type(end) is int for end in self.between)

    @property
    def labels(self) -> list[str]:
        return [json_text(choice) for choice in self.of or ()]

    @property
    def ends(self) -> list[Any]:
        """Returns the values that must be valid: both ends of a range, or every choice, with lists
        in place of tuples, as in a file.
        """
        return list(self.between or map(json.loads, self.labels))

    def to_stored(self, value: Any) -> Any:
        """Returns a value as Optuna stores it: a choice, which may be a list, as JSON."""
        return value if self.of is None else json_text(value)

    def from_stored(self, value: Any) -> Any:
        return value if self.of is None else json.loads(value)

    def contains(self, value: Any) -> bool:
        if self.of is not None:
            return json_text(value) in self.labels
        if type(value) not in ((int,) if self.is_whole else (int, float)):
            return False
        return self.range[0] <= value <= self.range[1]

    def grid(self) -> list[Any]:
        """Returns `points` values from end to end, or all choices."""
        if self.of is not None or self.points is None:
            return self.ends
        spaced = np.geomspace if self.scale == "log" else np.linspace
        values = spaced(*self.range, self.points).tolist()
        return list(dict.fromkeys(map(round, values) if self.is_whole else values))


class Asha(Section):
    kind: Literal["asha"]
    first: int = Field(ge=1, description="steps before the first comparison")
    factor: int = Field(ge=2, le=100, description="one of so many trials goes on")


class NoSchedule(Section):
    kind: Literal["none"]


class Confirm(Section):
    top: int = Field(ge=1, le=100, description="how many of the best trials are repeated")
    seed: int = Field(ge=0, lt=2**31, description="first `seed` of params.yaml then")
    seeds: int = Field(ge=1, le=1024, description="trainings of each: seed, seed + 1, ...")

    @property
    def base_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


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
    confirm: Confirm | None = Field(
        description="repeat the best: best of N is partly luck; or null"
    )
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
        for key, dimension in self.space.items():
            if dimension.of is None and dimension.points is None:
                raise ValueError(f"search: grid needs `points` in space.{key}")
        count = math.prod(len(dimension.grid()) for dimension in self.space.values())
        if count != self.trials:
            raise ValueError(f"the grid has {count} points; write trials: {count}")
        return self


class Space(NamedTuple):
    """Holds a sweep with what its trials are made of.

    raw: params.yaml under the sweep's preset, not validated. is_higher_better: the direction of
    the judged metric.
    """

    root: Path
    name: str
    sweep: Sweep
    raw: dict[str, Any]
    is_higher_better: bool

    def trial_raw(self, values: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        """Returns params.yaml with these values; with the preset's own seed if `seed` is None."""
        sweep = self.sweep
        section: dict[str, Any] = {"seeds": sweep.seeds}
        for key, value in values.items():
            section = overlaid(section, _nested(key, value))
        shared = {
            "seed": self.raw["seed"] if seed is None else seed,
            "device": "cuda" if sweep.gpus else "cpu",
            "threads": sweep.cpus,
        }
        return overlaid(self.raw, {**shared, sweep.model: section})

    def start(self) -> Values:
        """Returns the preset's own values of the searched keys."""
        return {key: value_at(self.raw[self.sweep.model], key) for key in self.sweep.space}

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
    sweep = _parse(path)
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
    space = Space(root, name, sweep, raw, direction == "higher")
    _check_ends(path.name, space)
    return space


def _parse(path: Path) -> Sweep:
    content = parse(path)
    try:
        return Sweep.model_validate(tuples(content))
    except ValidationError as error:
        raise ConfigError(describe(error, content, Sweep, path.name)) from None


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
    for key, dimension in sweep.space.items():
        if key == "seeds" or not all(key.split(".")):
            raise ConfigError(f"{file}: space.{key}: is no key to search; remove or correct it")
        for value in dimension.ends:
            _checked(f"{file}: space.{key} at {value!r}", space, {key: value})
    if sweep.confirm is not None and params.seed in sweep.confirm.base_seeds:
        raise ConfigError(
            f"{file}: confirm.seed = {sweep.confirm.seed}: the search's trials have seed = "
            f"{params.seed}; others show what was luck"
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


def _checked(place: str, space: Space, values: Values) -> Params:
    """Returns the params of a trial; an error begins with `place`."""
    try:
        return validate(space.trial_raw(values), lambda name: read_input(space.root, str(name)))
    except ConfigError as error:
        reason = str(error).removeprefix("params.yaml: ")
        raise ConfigError(f"{place}: {reason}") from None


def _nested(key: str, value: Any) -> dict[str, Any]:
    """Returns `a.b`, 1 as {a: {b: 1}}."""
    nested = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return dict(nested)
