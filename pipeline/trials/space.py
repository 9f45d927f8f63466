"""sweeps/NAME.yaml -> a search space over params.yaml, or one line that says what is wrong with it.

Nothing here imports Optuna or a framework: a mistake is refused within a second.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from pipeline.runtime.command import selected_models
from pipeline.storage.params_file import read_input
from pipeline.trials.trial import value_at
from quatrain.baselines import Rule
from quatrain.comparison_sides import deciding_rule
from quatrain.errors import ConfigError
from quatrain.params import Params, section_class
from quatrain.presets import parse, read_raw
from quatrain.registry import load
from quatrain.section import Section
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage.folders import read_text
from quatrain.validation import nearest, nested, overlaid, validate_section

FILE = re.compile(r"(?!default\.)[a-z][a-z0-9_]*\.yaml")
# How a preset begins that a sweep wrote.
MARK = "# Written by `make sweep SWEEP=sweeps/{name}.yaml`"
Values = dict[str, Any]


class Dimension(Section):
    """Holds where a key is searched: a range `between` two numbers, or one `of` some values."""

    between: tuple[int | float, int | float] | None = Field(
        default=None, description="two numbers, the lower one first; whole ones make whole values"
    )
    scale: Literal["linear", "log"] = Field(
        default="linear", description="log: equal ratios are equally likely"
    )
    of: tuple[Any, ...] | None = Field(
        default=None, min_length=2, description="two or more values of any kind"
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Dimension":
        if (self.between is None) == (self.of is None):
            raise ValueError("write either `between: [low, high]` or `of: [value, ...]`")
        if self.between is not None:
            low, high = self.between
            if low >= high:
                raise ValueError(f"the range is empty: {low} is not below {high}")
            if self.scale == "log" and low <= 0:
                raise ValueError(f"a log scale needs positive numbers, not {low}")
        return self

    @property
    def labels(self) -> list[str]:
        """Returns the values of `of` as JSON, in which 1, 1.0 and true differ."""
        return [json.dumps(value, sort_keys=True) for value in self.of or ()]

    def stored(self, value: Any) -> Any:
        """Returns a value as Optuna stores it, a choice by its label; None if it lies outside."""
        if self.between is None:
            label = json.dumps(value, sort_keys=True)
            return label if label in self.labels else None
        low, high = self.between
        return value if isinstance(value, int | float) and low <= value <= high else None


class Asha(Section):
    kind: Literal["asha"]
    first: int = Field(ge=1, description="steps before the first comparison")
    factor: int = Field(ge=2, le=100, description="one of so many trials goes on")


class NoSchedule(Section):
    kind: Literal["none"]


class Confirm(Section):
    top: int = Field(ge=1, le=100, description="how many of the best trials are repeated")
    seed: int = Field(ge=0, lt=2**31, description="first `seed` of params.yaml then")
    seeds: int = Field(
        ge=SEEDS_OF_INTERVAL, le=1024, description="trainings of each: seed, seed + 1, ..."
    )

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

    @field_validator("gpus")
    @classmethod
    def _gpus_are_whole_or_a_part_of_one(cls, gpus: float) -> float:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError("several must be a whole number")
        return gpus

    @model_validator(mode="after")
    def _grid_has_as_many_points_as_trials(self) -> "Sweep":
        if self.search == "grid":
            for key, dimension in self.space.items():
                if dimension.of is None:
                    raise ValueError(f"search: grid needs `of: [value, ...]` in space.{key}")
            count = math.prod(len(dimension.labels) for dimension in self.space.values())
            if count != self.trials:
                raise ValueError(f"the grid has {count} points; write trials: {count}")
        return self


class Space(NamedTuple):
    """Holds a sweep with what its trials are made of.

    raw: params.yaml under the sweep's preset, not validated. rule: the gate's, of the judged
    metric.
    """

    root: Path
    name: str
    sweep: Sweep
    raw: dict[str, Any]
    rule: Rule

    @property
    def is_higher_better(self) -> bool:
        return self.rule.direction == "higher"

    def changes(self, values: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        """Returns what a trial with these values has in place of the preset's; with the preset's
        own seed if `seed` is None.
        """
        sweep = self.sweep
        return {
            "seed": self.raw["seed"] if seed is None else seed,
            "device": "cuda" if sweep.gpus else "cpu",
            "devices": max(1, int(sweep.gpus)),
            "threads": sweep.cpus,
            sweep.model: {"seeds": sweep.seeds} | nested(values),
        }

    def trial_raw(self, values: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        """Returns params.yaml of a trial."""
        return overlaid(self.raw, self.changes(values, seed))

    def start(self) -> Values:
        """Returns the preset's own values of the searched keys."""
        return {key: value_at(self.raw[self.sweep.model], key) for key in self.sweep.space}

    def preset_path(self) -> Path:
        """Returns where the best trial is written.

        Raises:
            ConfigError: a preset is there that this sweep did not write.
        """
        path = self.root / "presets" / f"{self.name}.yaml"
        if path.exists() and not read_text(path).startswith(MARK.format(name=self.name)):
            raise ConfigError(
                f"presets/{path.name} is there, and this sweep did not write it; "
                f"rename sweeps/{path.name} or the preset"
            )
        return path


def read_space(root: Path, path: Path) -> Space:
    """Returns the search space of a file, with every end of every range validated.

    Raises:
        ConfigError: the file, its preset, a key, a range or the judged metric cannot be used, or
            its name is that of another preset.
    """
    if not FILE.fullmatch(path.name):
        raise ConfigError(
            f"{path.name}: a sweep is named as the preset that it writes: "
            "small letters, digits and _, then .yaml, and not default"
        )
    if not path.is_file():
        names = sorted(map(str, path.parent.glob("*.yaml")))
        others = f"; known: {', '.join(names)}" if names else ""
        raise ConfigError(f"{path} is not there{nearest(str(path), names)}{others}")
    sweep = validate_section(Sweep, parse(path), str, path.name)  # It names no other file.
    try:
        selected_models([sweep.model])
        if sweep.preset == path.stem:
            raise ConfigError(
                f"preset = {path.stem!r}: a sweep cannot start from the preset that it writes; "
                "copy that one under another name"
            )
        raw = read_raw(root, sweep.preset)
        rules = load(sweep.model).rules.gated(section_class(sweep.model, raw.get(sweep.model)))
        space = Space(root, path.stem, sweep, raw, deciding_rule(rules, sweep.judge, "judge"))
        _check(space)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None
    return space


def _check(space: Space) -> None:
    """Raises ConfigError if trials or their preset cannot be made of a space."""
    sweep = space.sweep
    space.preset_path()
    if "seeds" in sweep.space:
        raise ConfigError("space.seeds: is no key to search; all trials have `seeds` of the sweep")
    params = _params_of(space, {}, f"with seeds = {sweep.seeds}")
    for key, dimension in sweep.space.items():
        for value in dimension.of or dimension.between or ():
            _params_of(space, {key: value}, f"space.{key} at {value!r}")
    if sweep.confirm is not None and params.seed in sweep.confirm.base_seeds:
        raise ConfigError(
            f"confirm.seed = {sweep.confirm.seed}: the search's trials have seed = {params.seed}; "
            "others show what was luck"
        )
    steps = getattr(params, sweep.model).train.steps
    if sweep.schedule.kind == "asha" and sweep.schedule.first >= steps:
        raise ConfigError(
            f"schedule.first = {sweep.schedule.first}: a trial has only {steps:,} steps; "
            "compare earlier, or write schedule: {kind: none}"
        )


def _params_of(space: Space, values: Values, name: str) -> Params:
    """Returns the params of a trial; `name` begins the line of an error."""

    def read(path: object) -> Any:
        return read_input(space.root, str(path))

    return validate_section(Params, space.trial_raw(values), read, name)
