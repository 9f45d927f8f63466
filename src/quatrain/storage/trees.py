"""nested NamedTuples of arrays <-> arrays by name."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

import numpy as np

from quatrain.storage.folders import FolderError
from quatrain.storage.formats import Arrays

Tree = TypeVar("Tree", bound=tuple)


def to_arrays(tree: tuple) -> Arrays:
    """Returns the arrays of nested NamedTuples by name, e.g. `train/state`."""
    flat: Arrays = {}
    for name, value in tree._asdict().items():  # type: ignore[attr-defined]
        if hasattr(value, "_fields"):
            flat |= {f"{name}/{key}": array for key, array in to_arrays(value).items()}
        else:
            flat[name] = np.asarray(value)
    return flat


def from_arrays(cls: type[Tree], arrays: Mapping[str, np.ndarray]) -> Tree:
    """Inverts `to_arrays`; the annotations of `cls` say which fields are NamedTuples themselves.

    Raises:
        FolderError: a field has no array, or an array has no field.
    """
    names = _leaves(cls, "")
    missing = sorted(names - arrays.keys())
    others = sorted(arrays.keys() - names)
    if missing or others:
        raise FolderError(f"not a {cls.__name__}: arrays missing {missing}, unknown {others}")
    return _build(cls, arrays, "")


def _leaves(cls: type[tuple], prefix: str) -> set[str]:
    names: set[str] = set()
    for name, hint in get_type_hints(cls).items():
        if hasattr(hint, "_fields"):
            names |= _leaves(hint, f"{prefix}{name}/")
        else:
            names.add(prefix + name)
    return names


def _build(cls: type[Tree], arrays: Mapping[str, np.ndarray], prefix: str) -> Tree:
    fields: dict[str, Any] = {
        name: _build(hint, arrays, f"{prefix}{name}/")
        if hasattr(hint, "_fields")
        else arrays[prefix + name]
        for name, hint in get_type_hints(cls).items()
    }
    return cls(**fields)
