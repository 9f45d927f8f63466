"""nested NamedTuples, dictionaries, tuples and lists <-> arrays by path, such as `train/state`.

What a leaf is, each framework says (frameworks/jax.py, frameworks/torch.py). The leaves of a
dataset are NumPy arrays, and the annotations of its class say which.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
from jaxtyping import AbstractArray

from quatrain.errors import FolderError

Arrays = dict[str, np.ndarray]
Tree = TypeVar("Tree")


class ArraySpec(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]

    def fits(self, array: np.ndarray) -> bool:
        return (array.dtype, array.shape) == self

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape}"


class AnnotationSpec(NamedTuple):
    """lengths: those of the axes that fields of one NamedTuple name, once they are known."""

    kind: Any
    lengths: dict[str, Any]

    def fits(self, array: np.ndarray) -> bool:
        """Returns whether dtype and axes are those of the annotation. jaxtyping's own check would
        load jax.
        """
        axes = self.kind.dim_str.split()
        lengths: list[Any] = list(array.shape)
        for start in [place for place, axis in enumerate(axes) if axis[0] in "*."]:
            end = array.ndim - len(axes) + start + 1
            lengths[start:end] = [tuple(lengths[start:end])]
        dtypes = self.kind.dtypes
        is_other = isinstance(dtypes, list | tuple) and array.dtype.name not in dtypes
        return (len(lengths) == len(axes) and not is_other) and all(
            length == (int(axis) if axis.isdecimal() else self.lengths.setdefault(axis, length))
            for axis, length in zip(axes, lengths, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.kind.__name__.partition('[')[0]}[{self.kind.dim_str}]"


def flatten(tree: Any, to_array: Callable[[Any], np.ndarray] = np.asarray) -> Arrays:
    """Returns the array of each leaf by its path; None has none."""
    return {path: to_array(leaf) for path, leaf in _leaves(tree).items()}


def unflatten(
    template: Tree,
    arrays: Mapping[str, np.ndarray],
    spec_of: Callable[[Any], ArraySpec],
    to_leaf: Callable[[Any, np.ndarray], Any],
) -> Tree:
    """Inverts `flatten`: returns the template with leaves of these arrays.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    leaves = _leaves(template)
    verify(arrays, {name: spec_of(leaf) for name, leaf in leaves.items()})
    return _rebuilt(template, iter([to_leaf(leaf, arrays[name]) for name, leaf in leaves.items()]))


def to_dataset(cls: type[Tree], arrays: Mapping[str, np.ndarray]) -> Tree:
    """Inverts `flatten` for nested NamedTuples of NumPy arrays.

    Raises:
        FolderError: a field has no array, an array has no field, or not the dtype and axes of its
            annotation.
    """
    template = _annotations(cls)
    annotations = _leaves(template)
    lengths: dict[str, dict[str, Any]] = defaultdict(dict)
    specs = {
        name: AnnotationSpec(kind, lengths[name.rpartition("/")[0]])
        for name, kind in annotations.items()
    }
    try:
        verify(arrays, specs, f"a {cls.__name__}")
    except ValueError as error:
        raise FolderError(str(error)) from None
    return _rebuilt(template, iter([arrays[name] for name in annotations]))


def verify(
    arrays: Mapping[str, np.ndarray],
    specs: Mapping[str, ArraySpec] | Mapping[str, AnnotationSpec],
    what: str = "a learner of this config",
) -> None:
    """Raises ValueError unless names, dtypes and shapes match."""
    missing = sorted(specs.keys() - arrays.keys())
    others = sorted(arrays.keys() - specs.keys())
    if missing or others:
        raise ValueError(f"not {what}: arrays missing {missing}, unknown {others}")
    for name, spec in specs.items():
        array = arrays[name]
        if not spec.fits(array):
            raise ValueError(f"not {what}: {name} is {array.dtype}{array.shape}, not {spec}")


def _leaves(tree: Any, path: str = "") -> dict[str, Any]:
    children = _children(tree)
    if children is None:
        return {path: tree}
    leaves: dict[str, Any] = {}
    for name, child in children.items():
        leaves |= _leaves(child, f"{path}/{name}" if path else name)
    return leaves


def _children(tree: Any) -> dict[str, Any] | None:
    if hasattr(tree, "_asdict"):
        return tree._asdict()
    if not isinstance(tree, dict | tuple | list | None):
        return None
    items = tree.items() if isinstance(tree, dict) else enumerate(tree or ())
    return {str(name): child for name, child in items}


def _rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    children = _children(tree)
    if children is None:
        return next(leaves)
    rebuilt = [_rebuilt(child, leaves) for child in children.values()]
    if isinstance(tree, dict):
        return dict(zip(tree, rebuilt, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*rebuilt)
    return None if tree is None else type(tree)(rebuilt)


def _annotations(cls: Any) -> Any:
    """Returns the NamedTuple with annotations of arrays in place of arrays."""
    if hasattr(cls, "_fields"):
        return cls(*map(_annotations, get_type_hints(cls).values()))
    return next(kind for kind in get_args(cls) or (cls,) if issubclass(kind, AbstractArray))
