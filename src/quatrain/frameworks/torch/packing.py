"""state of a torch model <-> flat arrays by name, which any file format can store."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from quatrain.frameworks.arrays import ArraySpec, verify

State = TypeVar("State")


def to_arrays(state: Any) -> dict[str, np.ndarray]:
    """Returns a copy of each tensor under its path (`params/hidden.bias`).

    Raises:
        TypeError: a leaf is not a tensor. Numbers that change while learning are tensors without
            axes.
    """
    return {
        name: np.array(leaf.numpy(force=True), order="C") for name, leaf in _leaves(state).items()
    }


def from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """Inverts `to_arrays`; uses only structure, shapes, dtypes and devices of the template.

    Each tensor is new, without a gradient, and on the device of the template's tensor, because
    devices differ: the state of a generator is always on the CPU.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    leaves = _leaves(template)
    verify(arrays, {name: _spec(leaf) for name, leaf in leaves.items()})
    tensors = [torch.tensor(arrays[name], device=leaf.device) for name, leaf in leaves.items()]
    return _unflatten(template, iter(tensors))


def _leaves(tree: Any, path: str = "") -> dict[str, Tensor]:
    """Returns the tensors of nested NamedTuples, dictionaries, tuples and lists by path; None has
    none.
    """
    if isinstance(tree, Tensor):
        return {path: tree}
    if not isinstance(tree, dict | tuple | list | None):
        raise TypeError(f"{path} is of type {type(tree).__name__}, not a tensor")
    leaves: dict[str, Tensor] = {}
    for name, child in _children(tree).items():
        leaves |= _leaves(child, f"{path}/{name}" if path else name)
    return leaves


def _children(tree: Any) -> dict[str, Any]:
    if hasattr(tree, "_asdict"):
        return tree._asdict()
    items = tree.items() if isinstance(tree, dict) else enumerate(tree or ())
    return {str(name): child for name, child in items}


def _unflatten(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """Returns the same tree with other tensors, in the order of `_leaves`."""
    if isinstance(tree, Tensor):
        return next(leaves)
    children = [_unflatten(child, leaves) for child in _children(tree).values()]
    if isinstance(tree, dict):
        return dict(zip(tree, children, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*children)
    return None if tree is None else type(tree)(children)


def _spec(leaf: Tensor) -> ArraySpec:
    return ArraySpec(
        torch.empty(0, dtype=leaf.dtype, device="cpu").numpy().dtype, tuple(leaf.shape)
    )
