"""an argument of the public API -> nothing, or one line where it is of another kind."""

import os
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from quatrain.errors import ConfigError, DataError
from quatrain.storage.yaml_text import MAX_DEPTH

ENV = 'a dictionary that says how to make it, such as {"kind": "gymnasium", "id": "CartPole-v1"}'


def check_type(name: str, value: object, kinds: type | tuple[type, ...], remedy: str) -> None:
    """Raises ConfigError unless an argument is of one of these types; remedy: what to give."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} is of type {type(value).__name__}; give {remedy}")


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raises ConfigError unless changes of a config are nested dictionaries with an end."""
    if "env" in changes:
        check_type("env", changes["env"], Mapping, ENV)
    if is_deeper(changes, MAX_DEPTH):
        raise ConfigError(
            f"the changes are nested deeper than {MAX_DEPTH} levels, or hold themselves; "
            "give keys of params.yaml, section by section"
        )


def is_deeper(value: object, levels: int) -> bool:
    """Returns whether dictionaries and lists hold one another more often than so."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(is_deeper(part, levels - 1) for part in parts)


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
    return Path(name)
