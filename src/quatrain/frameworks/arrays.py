"""arrays by name, the specs that the config implies -> an error unless they match, in any
framework.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class ArraySpec(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]


def verify(arrays: Mapping[str, np.ndarray], specs: Mapping[str, ArraySpec]) -> None:
    """Raises ValueError unless names, dtypes and shapes match."""
    differing = sorted(arrays.keys() ^ specs.keys())
    if differing:
        raise ValueError(f"not a learner of this config: differing arrays {differing}")
    for name, (dtype, shape) in specs.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"not a learner of this config: {name} is {array.dtype}{array.shape}, "
                f"not {dtype}{shape}"
            )
