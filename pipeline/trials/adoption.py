"""the best trial -> presets/NAME.yaml, which `make repro PRESET=NAME` runs as the trial ran."""

from pipeline.storage.params_file import write_raw
from pipeline.trials.space import MARK, Space
from pipeline.trials.trial import Trial, make_trial, value_at
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.registry import MODELS
from quatrain.validation import overlaid


def write_preset(space: Space, trial: Trial, number: int) -> None:
    """Writes the preset that the sweep started from, with the values of a trial.

    Raises:
        ConfigError: params.yaml or that preset was changed meanwhile, so that the new one would be
            another trial; nothing is written.
    """
    path, presets = space.preset_path(), space.root / "presets"
    start, model = space.sweep.preset, space.sweep.model
    overlay = {} if start == "default" else parse(presets / f"{start}.yaml")
    # Whole values: what is searched may be a part of a section.
    values = {key: value_at(trial.raw[model], key) for key in space.sweep.space}
    overlay = overlaid(overlay, space.changes(values, trial.params.seed) | {"preset": space.name})
    others = MODELS.keys() - {model}
    overlay = {key: value for key, value in overlay.items() if key not in others}
    raw = overlaid(parse(space.root / "params.yaml"), overlay)
    if make_trial(space.root, model, raw).key != trial.key:
        raise ConfigError(
            f"presets/{path.name} would not give trial {number}; "
            "params, inputs or code were changed while the sweep ran: run the same command again"
        )
    write_raw(path, overlay, f"{MARK.format(name=space.name)}: trial {number}.\n")


def remove_preset(space: Space) -> None:
    """Removes the preset of an earlier run of this sweep: nothing is better than the start."""
    space.preset_path().unlink(missing_ok=True)
