"""learner of a torch model <-> flat arrays by name, which any file format can hold."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from quatrain.frameworks.arrays import ArraySpec, verify

State = TypeVar("State")


def to_arrays(learner: Any) -> dict[str, np.ndarray]:
    """Each tensor under its path (`params/hidden.bias`), as an array with memory of its own.

    Raises:
        TypeError: a leaf is no tensor: a number that changes while learning is one without axes.
    """
    return {
        name: np.array(leaf.numpy(force=True), order="C") for name, leaf in _named(learner).items()
    }


def from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """The inverse of `pack`; of the template structure, shapes, dtypes and devices count.

    Each tensor is new, without a gradient, and on the device of the template's, for not all are on one: a generator's
    state is on the CPU wherever its generator is.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    wanted = _named(template)
    verify(arrays, {name: _form(like) for name, like in wanted.items()})
    return _filled(
        template,
        iter([torch.tensor(arrays[name], device=like.device) for name, like in wanted.items()]),
    )


def _named(tree: Any, path: str = "") -> dict[str, Tensor]:
    """The tensors of nested NamedTuples, dictionaries, tuples and lists, by their path; None holds none."""
    if isinstance(tree, Tensor):
        return {path: tree}
    if not isinstance(tree, dict | tuple | list | None):
        raise TypeError(f"{path} is of type {type(tree).__name__}, not a tensor")
    inner = [
        _named(child, f"{path}/{name}" if path else name) for name, child in _children(tree).items()
    ]
    return {name: leaf for leaves in inner for name, leaf in leaves.items()}


def _children(tree: Any) -> dict[str, Any]:
    if hasattr(tree, "_asdict"):
        return tree._asdict()
    return {
        str(name): child
        for name, child in (tree.items() if isinstance(tree, dict) else enumerate(tree or ()))
    }


def _filled(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """The same tree around other tensors, which come in the order of `_named`."""
    if isinstance(tree, Tensor):
        return next(leaves)
    inner = [_filled(child, leaves) for child in _children(tree).values()]
    if isinstance(tree, dict):
        return dict(zip(tree, inner, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*inner)
    return None if tree is None else type(tree)(inner)


def _form(like: Tensor) -> ArraySpec:
    return ArraySpec(
        torch.empty(0, dtype=like.dtype, device="cpu").numpy().dtype, tuple(like.shape)
    )
