"""the best trial -> presets/NAME.yaml, which `make repro PRESET=NAME` runs as the trial ran."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.storage.params_file import read_input
from pipeline.storage.run_key import params_of
from pipeline.trials.space import Space, json_text
from pipeline.trials.trial import Trial
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text
from quatrain.validation import overlaid, validate

MARK = "# Written by `make sweep SWEEP=sweeps/{name}.yaml`"


def check_preset(space: Space) -> None:
    """Raises ConfigError if a preset of this name was not written by this sweep."""
    path = preset_path(space)
    if path.exists() and not read_text(path).startswith(MARK.format(name=space.name)):
        raise ConfigError(
            f"presets/{path.name} is there, and this sweep did not write it; "
            f"rename sweeps/{path.name} or the preset"
        )


def write_preset(space: Space, trial: Trial, number: int) -> None:
    """Writes the values by which the params of a trial differ from params.yaml.

    Raises:
        ConfigError: params.yaml was changed meanwhile, so that the preset would be another trial;
            nothing is written.
    """
    default = parse(space.root / "params.yaml")
    shared = {
        key: value
        for key, value in trial.raw.items()
        if not isinstance(value, Mapping) and value != default[key]
    }
    section = difference(default[trial.model], trial.raw[trial.model])
    overlay = shared | {"preset": space.name} | ({trial.model: section} if section else {})
    adopted = validate(overlaid(default, overlay), lambda name: read_input(space.root, str(name)))
    path = preset_path(space)
    if params_of(adopted, trial.model) != params_of(trial.params, trial.model):
        raise ConfigError(
            f"presets/{path.name} would not give the params of trial {number}; "
            "params.yaml was changed while the sweep ran: run the same command again"
        )
    text = StringIO()
    YAML().dump(overlay, text)
    head = MARK.format(name=space.name)
    write_durably(path, f"{head}: trial {number}.\n{text.getvalue()}".encode())


def remove_preset(space: Space) -> None:
    """Removes the preset of an earlier run of this sweep: nothing is better than the start."""
    check_preset(space)
    preset_path(space).unlink(missing_ok=True)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the overlay that makes `new` of `old`, as presets are laid over params.yaml."""
    changed = {}
    for key, value in new.items():
        before = old.get(key)
        if key in old and json_text(value) == json_text(before):
            continue
        if not isinstance(value, Mapping) or not isinstance(before, Mapping):
            changed[key] = value
        elif value.get("kind") == before.get("kind"):
            changed[key] = difference(before, value)
        else:
            changed[key] = value
    return changed


def preset_path(space: Space) -> Path:
    return space.root / "presets" / f"{space.name}.yaml"
