"""arrays by name, the forms that a learner of this config has -> whether they are such a learner, in any framework."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class ArraySpec(NamedTuple):
    """Of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]


def verify(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, ArraySpec]) -> None:
    """Nothing, where names, dtypes and shapes are those that are wanted.

    Raises:
        ValueError: they are not.
    """
    if arrays.keys() != wanted.keys():
        raise ValueError(
            f"not a learner of this config: differing arrays {sorted(arrays.keys() ^ wanted.keys())}"
        )
    for name, (dtype, shape) in wanted.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"not a learner of this config: {name} is {array.dtype}{array.shape}, not {dtype}{shape}"
            )
