"""model, preset, changes -> a validated config, from the defaults inside the package."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from quatrain import presets
from quatrain.api.arguments import check_changes, check_type
from quatrain.envs.host.config import names_user_env
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.section import Content, Section
from quatrain.storage.disk_errors import escaped
from quatrain.storage.input_files import read_content
from quatrain.validation import nearest, overlaid, sections_of, validate_section

DEFAULTS = Path(__file__).parents[1] / "defaults"
# What environments of users start from.
USERS_PRESET = "gymnasium"


def config(model: str, preset: str | None = None, **changes: Any) -> Any:
    """Returns the config of a model: the defaults, the values of a preset, then the changes.

    It is frozen and complete: every value that a training depends on is an attribute. Changes are
    nested dictionaries of keys of params.yaml and are merged section by section, as presets are;
    where `kind` chooses one of several sections, another `kind` replaces the whole section. A key
    may name a file (a map, a plate, a field) by its path.

    Args:
        model: `allo`, `iqn`, `actor_critic` or `active_dynamics`.
        preset: a name of presets/, such as `smoke` or `paper`; None: the defaults, or for an
            environment of kind `gymnasium` or `pettingzoo` the preset `gymnasium`.
        **changes: sections and keys of the model, such as `train={"steps": 2000}` or `seeds=3`.

    Returns:
        The model's config, which `quatrain.fit(model, config=...)` takes.

    Raises:
        ConfigError: there is no such model, preset or key, or a value cannot be used; the one line
            says which, why, and what was probably meant. It is a ValueError.

    Example:
        >>> config = quatrain.config("allo", "smoke", train={"steps": 1000}, seeds=3)
        >>> config.train.steps, config.network.hidden
        (1000, 64)
    """
    return getattr(make_params(model, preset, changes), model)


def make_params(
    model: str, preset: str | None, changes: Mapping[str, Any], **shared: Any
) -> Params:
    """Returns the whole Params with changes of a model and of shared keys.

    Raises:
        ConfigError: as `config`; or a shared key cannot be used.
    """
    check_model(model)
    check_changes(changes)
    raw = read_defaults(preset_of(changes) if preset is None else preset)
    env = changes.get("env")
    if isinstance(env, Mapping) and ":" in str(env.get("import")):
        changes = {**changes, "env": {"id": None, **env}}  # a callable, not the preset's id
    return validated(overlaid(raw, {model: dict(changes), **shared}))


def params_with(model: str, section: Any, **shared: Any) -> Params:
    """Returns the whole Params with this config of a model.

    Raises:
        ConfigError: it is the config of another model, or a shared key cannot be used.
    """
    check_model(model)
    if type(section) not in sections_of(Params, model).values():
        raise ConfigError(
            f"config is of type {type(section).__name__}, not that of {model}; "
            f"make one with quatrain.config({model!r})"
        )
    return validated(read_defaults(None) | {model: section, **shared})


def changed_section(model: str, section: Section, changes: Mapping[str, Any]) -> Any:
    """Returns the config of a model with some values changed.

    Raises:
        ConfigError: a key or a value cannot be used.
    """
    check_changes(changes)
    return restore_section(model, overlaid(section.model_dump(), changes))


def restore_section(model: str, values: Mapping[str, Any]) -> Any:
    """Returns the config of a model with these values, all of them.

    Raises:
        ConfigError: they are not those of a config of this version of the model.
    """
    return getattr(validated(read_defaults(None) | {model: dict(values)}), model)


def check_model(model: object) -> None:
    """Raises ConfigError unless there is a model of this name."""
    if not isinstance(model, str) or model not in MODELS:
        hint = nearest(str(model), list(MODELS))
        raise ConfigError(f"unknown model {model!r}{hint}; known: {', '.join(MODELS)}")


def check_seed(seed: object) -> None:
    """Raises ConfigError unless it is a seed that params.yaml may have."""
    plain = int(seed) if isinstance(seed, np.integer) else seed
    validated(read_defaults(None) | {"seed": plain})


def preset_of(changes: Mapping[str, Any]) -> str | None:
    """Returns the preset that users' environments start from; None for any other."""
    return USERS_PRESET if names_user_env(changes) else None


def read_defaults(preset: str | None) -> dict[str, Any]:
    """Returns the raw values of params.yaml in the package with those of a preset.

    Raises:
        ConfigError: there is no such preset.
    """
    check_type("preset", preset, (str, NoneType), "the name of a preset, or None")
    return _read(DEFAULTS, preset)


@cache
def _read(folder: Path, preset: str | None) -> dict[str, Any]:
    return presets.read_raw(folder, preset)


def validated(raw: Mapping[str, Any]) -> Params:
    return validate_section(Params, raw, read_named, "quatrain")


def read_named(name: object) -> Content:
    """Returns the content of a file that a config names.

    Raises:
        ValueError: it is missing or damaged.
    """
    path = Path(str(name))
    try:
        is_there = path.is_file()
    except (OSError, ValueError) as error:  # too long, or a null character
        raise ConfigError(f"{escaped(str(name))[:80]}: is no usable path ({error})") from None
    if not is_there:
        raise ConfigError(f"{name} is not there (a relative path starts in {Path.cwd()})")
    return read_content(path)
