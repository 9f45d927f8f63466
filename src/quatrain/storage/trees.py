"""nested NamedTuples of arrays <-> arrays by name."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from jaxtyping import AbstractArray

from quatrain.errors import FolderError
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
        FolderError: a field has no array, an array has no field, or not the dtype and axes of its
            annotation.
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
    fields: dict[str, Any] = {}
    lengths: dict[str, Any] = {}  # an axis that two fields name has one length
    for name, hint in get_type_hints(cls).items():
        if hasattr(hint, "_fields"):
            continue
        fields[name] = array = arrays[prefix + name]
        if not _fits(array, hint, lengths):
            raise FolderError(
                f"not a {cls.__name__}: {prefix}{name} is {array.dtype} of shape {array.shape}, "
                f"where {_shown(hint)} belongs"
            )
    for name, hint in get_type_hints(cls).items():
        if hasattr(hint, "_fields"):
            fields[name] = _build(hint, arrays, f"{prefix}{name}/")
    return cls(**fields)


def _fits(array: np.ndarray, hint: Any, lengths: dict[str, Any]) -> bool:
    """Returns whether dtype and axes are those of an annotation; notes the lengths of its axes.

    jaxtyping's own check would load jax.
    """
    kind = next(filter(_is_array_type, get_args(hint) or (hint,)), None)
    if kind is None:
        return True
    axes = kind.dim_str.split()
    at = next((place for place, axis in enumerate(axes) if axis[0] in "*."), None)
    spare = array.ndim - len(axes) + 1
    if (at is None and spare != 1) or spare < 0:
        return False
    shape: list[Any] = list(array.shape)
    if at is not None:
        shape[at : at + spare] = [tuple(shape[at : at + spare])]
    is_other = isinstance(kind.dtypes, list | tuple) and array.dtype.name not in kind.dtypes
    return not is_other and all(
        length == (int(axis) if axis.isdecimal() else lengths.setdefault(axis, length))
        for axis, length in zip(axes, shape, strict=True)
    )


def _is_array_type(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, AbstractArray)


def _shown(hint: Any) -> str:
    kind = next(filter(_is_array_type, get_args(hint) or (hint,)))
    return f"{kind.__name__.partition('[')[0]} [{kind.dim_str}]"
