"""the best trial -> presets/NAME.yaml, which `make repro PRESET=NAME` runs as the trial ran."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.scaling.records import Trial
from pipeline.scaling.result import (
    SweepResult,
    confirmation_of,
    confirmed,
    ranked,
    start_of,
    winner_of,
)
from pipeline.scaling.space import Space, json_text
from pipeline.storage.params_file import read_input
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text
from quatrain.validation import overlaid, validate

NOTHING_BETTER = "no trial is better than the start"
MARK = "# Written by `make sweep SWEEP=sweeps/{name}.yaml`"


def check_preset(space: Space) -> None:
    """Raises ConfigError if a preset of this name was not written by this sweep."""
    path = _path(space)
    if path.exists() and not read_text(path).startswith(MARK.format(name=space.name)):
        raise ConfigError(
            f"presets/{path.name} is there, and this sweep did not write it; "
            f"rename sweeps/{path.name} or the preset"
        )


def obstacle(space: Space, result: SweepResult) -> str | None:
    """Returns why no trial can be adopted; None if the winner can.

    Where trials were to be confirmed, a score of the search alone decides nothing.
    """
    winner = winner_of(result)
    if winner is None:
        return "no trial has a score"
    has_candidates = any(trial.role == "search" for trial in ranked(result, result.trials))
    if space.sweep.confirm is not None and has_candidates:
        is_start_confirmed = confirmation_of(result, start_of(result)) is not None
        if not is_start_confirmed or all(trial.role == "start" for trial in confirmed(result)):
            return "trials could not be confirmed; the table says why"
    return NOTHING_BETTER if winner.role == "start" else None


def write_preset(space: Space, trial: Trial) -> Path:
    """Writes the values by which the params of a trial differ from params.yaml.

    Raises:
        ConfigError: params.yaml was changed meanwhile, so that the preset would be another trial;
            nothing is written.
    """
    default = parse(space.root / "params.yaml")
    section = space.sweep.model
    raw = space.raw_of(trial)
    shared = {
        key: value
        for key, value in raw.items()
        if not isinstance(value, Mapping) and value != default[key]
    }
    model = difference(default[section], raw[section])
    overlay = shared | {"preset": space.name} | ({section: model} if model else {})
    adopted = validate(overlaid(default, overlay), lambda name: read_input(space.root, str(name)))
    expected = space.params_of(trial).model_copy(update={"preset": space.name})
    others = {"preset", section, *shared}
    path = _path(space)
    if adopted.model_dump(include=others) != expected.model_dump(include=others):
        raise ConfigError(
            f"presets/{path.name} would not give the params of trial {trial.number}; "
            "params.yaml was changed while the sweep ran: run the same command again"
        )
    text = StringIO()
    YAML().dump(overlay, text)
    head = MARK.format(name=space.name)
    write_durably(path, f"{head}: trial {trial.number}.\n{text.getvalue()}".encode())
    return path


def remove_preset(space: Space) -> None:
    """Removes the preset of an earlier run of this sweep: no trial is better than the start."""
    check_preset(space)
    _path(space).unlink(missing_ok=True)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the overlay that makes `new` of `old`, as presets are laid over params.yaml."""
    changed = {}
    for key, value in new.items():
        before = old.get(key)
        if key in old and json_text(value) == json_text(before):
            continue
        if (
            isinstance(value, Mapping)
            and isinstance(before, Mapping)
            and value.get("kind") == before.get("kind")
        ):
            changed[key] = difference(before, value)
        else:
            changed[key] = value
    return changed


def _path(space: Space) -> Path:
    return space.root / "presets" / f"{space.name}.yaml"
