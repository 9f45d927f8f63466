"""model, preset, changes -> a validated config, from the defaults inside the package; the id of an
environment -> the environment; an argument -> nothing, or one line where it is of another kind.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from quatrain import presets
from quatrain.api.session import require
from quatrain.envs.host.config import NO_ENV, NO_MAKER, names_user_env
from quatrain.errors import ConfigError, DataError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.section import Content
from quatrain.storage.input_files import read_content
from quatrain.validation import nearest, overlaid, sections_of, validate_section

DEFAULTS = Path(__file__).parents[1] / "defaults"
NAMESPACE = "quatrain/"
# What environments of users start from; allo's preset `gymnasium` has cells of MountainCar-v0.
USERS_PRESETS = {"allo": "observations"}
USERS_PRESET = "gymnasium"
# What others call models.
ALGORITHMS = {"ppo": "actor_critic", "a2c": "actor_critic", "dqn": "iqn", "qr-dqn": "iqn"}


def config(model: str, preset: str | None = None, **changes: Any) -> Any:
    """Returns the config of a model: the defaults, the values of a preset, then the changes.

    It is frozen and complete: every value that a training depends on is an attribute. Changes are
    nested dictionaries of keys of params.yaml and are merged section by section, as presets are;
    where `kind` chooses one of several sections, another `kind` replaces the whole section. A key
    may name a file (a map, a plate, a field) by its path.

    Args:
        model: `allo`, `iqn`, `actor_critic` or `active_dynamics`.
        preset: a name of presets/, such as `smoke` or `paper`; None: the defaults, or for an
            environment of the user's own the preset `gymnasium` (allo: `observations`).
        **changes: sections and keys of the model, such as `train={"steps": 2000}` (iqn has turns,
            actor_critic transitions) or `seeds=3`; `env` may be whatever `quatrain.fit` takes.

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


def make(id: str, num_envs: int | None = None, **settings: Any) -> Any:
    """Returns an environment of this package under the Gymnasium API.

    Args:
        id: such as `quatrain/Colony-v0`; `Colony-v0` means the same.
        num_envs: None: one environment; else a vector of so many, by batched code where there is.
        **settings: passed to `gymnasium.make` or `gymnasium.make_vec`, such as `render_mode`.

    Returns:
        A `gymnasium.Env`, or a `gymnasium.vector.VectorEnv` if `num_envs` is given.

    Raises:
        PackageMissing: gymnasium is not installed.
        ConfigError: there is no such environment; the line names those that there are. Or num_envs
            is no whole number from 1. Or the environment has no such setting, or not with that
            value.

    Example:
        >>> env = quatrain.make("quatrain/Grid-v0")
        >>> obs, info = env.reset(seed=0)
    """
    check_type("id", id, str, "the id of an environment, such as 'quatrain/Colony-v0'")
    if num_envs is not None:
        check_count("num_envs", num_envs)
    require("quatrain.make", ("gymnasium",), "gym")
    import gymnasium

    import_module("quatrain.envs.adapters")
    name = id if id.startswith(NAMESPACE) else NAMESPACE + id
    registered = sorted(each for each in gymnasium.registry if each.startswith(NAMESPACE))
    if name not in registered:
        hint = nearest(name, registered)
        names = ", ".join(registered) or "none"
        raise ConfigError(f"unknown environment {id!r}{hint}; known: {names}")
    if num_envs is None:
        return gymnasium.make(name, **settings)
    return gymnasium.make_vec(name, num_envs=num_envs, **settings)


def make_params(
    model: str, preset: str | None, changes: Mapping[str, Any], **shared: Any
) -> Params:
    """Returns the whole Params with changes of a model and of shared keys.

    Raises:
        ConfigError: as `config`; or a shared key cannot be used.
    """
    check_model(model)
    check_type("preset", preset, (str, NoneType), "the name of a preset, or None")
    if "env" in changes:
        changes = {**changes, "env": env_keys(changes["env"])}
    if preset is None and names_user_env(changes):
        preset = USERS_PRESETS.get(model, USERS_PRESET)
    raw = read_defaults(preset)
    if names_user_env(changes) and not names_user_env(raw.get(model)):
        sections = {name: read_defaults(name).get(model) for name in presets.names(DEFAULTS)}
        names = [name for name, section in sections.items() if names_user_env(section)]
        raise ConfigError(
            f"preset {preset!r} has no settings of {model} for an environment of your own; leave "
            f"preset out, or name one that has: {', '.join(names)}"
        )
    env = changes.get("env", {})
    if names_user_env(raw.get(model)) and (env.get("id") or env.get("import")):
        # What a preset says of its example is not true of another environment.
        raw = raw | {model: raw[model] | {"env": raw[model]["env"] | NO_MAKER}}
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


def with_changes(params: Params, model: str, changes: Mapping[str, Any], **shared: Any) -> Params:
    """Returns params with some values of a model and of shared keys changed.

    Raises:
        ConfigError: a key or a value cannot be used.
    """
    return validated(overlaid(params.model_dump(), {model: changes, **shared}))


def check_model(model: object) -> None:
    """Raises ConfigError unless there is a model of this name."""
    if not isinstance(model, str) or model not in MODELS:
        known_as = ALGORITHMS.get(str(model).lower())
        hint = f"; it is {known_as!r} here" if known_as else nearest(str(model), list(MODELS))
        raise ConfigError(f"unknown model {model!r}{hint}; known: {', '.join(MODELS)}")


def check_seed(seed: object) -> None:
    """Raises ConfigError unless it is a seed that params.yaml may have."""
    plain = int(seed) if isinstance(seed, np.integer) else seed
    validated(read_defaults(None) | {"seed": plain})


@cache
def read_defaults(preset: str | None) -> dict[str, Any]:
    """Returns the raw values of params.yaml in the package with those of a preset.

    Raises:
        ConfigError: there is no such preset.
    """
    try:
        return presets.read_raw(DEFAULTS, preset)
    except ConfigError as error:
        raise ConfigError(f"{error}; an environment is given as env={preset!r}") from None


def validated(raw: Mapping[str, Any]) -> Params:
    return validate_section(Params, raw, _read_named, "quatrain")


def _read_named(name: object) -> Content:
    """Returns the content of a file that a config names.

    Raises:
        ValueError: it is missing or damaged.
    """
    return read_content(Path(str(name)), f"a relative path starts in {Path.cwd()}")


# Arguments.


def check_type(name: str, value: object, kinds: type | tuple[type, ...], remedy: str) -> None:
    """Raises ConfigError unless an argument is of one of these types; remedy: what to give."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} is of type {type(value).__name__}; give {remedy}")


def env_keys(env: Any) -> dict[str, Any]:
    """Returns the keys of the section `env` of what a user gives as env.

    Raises:
        ConfigError: it says nothing about how to make an environment.
        DataError: a callable raised when it was called to find out which kind it makes.
        PackageMissing: gymnasium is not installed.
    """
    if isinstance(env, Mapping) and callable(env.get("true_field")):
        require("env", ("gymnasium",), "gym")
        from quatrain.envs.host.given import name_of

        env = {**env, "true_field": name_of(env["true_field"])}
    if isinstance(env, Mapping) and env.get("kind") == "recording":
        return {**NO_ENV, **env}
    if isinstance(env, Mapping) and not {"id", "import", "wrappers"} & env.keys():
        return dict(env)
    require("env", ("gymnasium",), "gym")
    from quatrain.envs.host.given import keys_of

    return keys_of(env)


def check_dataset(model: str, dataset: object, kind: type) -> None:
    """Raises DataError unless data are of the type that the model collects."""
    if not isinstance(dataset, kind):
        raise DataError(
            f"dataset is of type {type(dataset).__name__}, not data of this {model}; "
            "give the dataset of a result with an equal config"
        )


def check_count(name: str, value: object) -> None:
    """Raises ConfigError unless an argument is a whole number from 1."""
    check_type(name, value, Integral, "a whole number from 1")
    if isinstance(value, bool) or int(value) < 1:  # type: ignore[call-overload]
        raise ConfigError(f"{name} is {value!r}; give a whole number from 1")


def as_path(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a file or folder; raises ConfigError for anything else."""
    check_type("path", path, (str, os.PathLike), "the path of a folder or file, as text")
    name = os.fspath(path)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"path is {name!r}; give the path of a folder or file, as text")
    try:
        is_impossible = b"\0" in os.fsencode(name)
    except UnicodeEncodeError:
        is_impossible = True
    if is_impossible:
        raise ConfigError(f"path is {name!r}, which no disk can have; choose another name")
    return Path(name)
