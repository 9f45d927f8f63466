"""what an environment returned -> numbers, or an error where its spaces do not allow them"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from jaxtyping import Float32

from quatrain.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
# Kinds of dtypes that hold real numbers.
NUMBERS = "fiub"


def reader(name: str, space: gymnasium.Space) -> Callable[[Any], Float32[np.ndarray, " obs"]]:
    """Returns what flattens an observation, which errors call `name`, into a copy, because
    environments may reuse their arrays.

    It raises DataError where one has another shape or other parts than its space, is not finite, or
    is no integer within the bounds where the space holds integers. Floats may lie beyond the bounds
    of their Box, because those of many environments do so a little.
    """
    check = _checker(space)

    def read(value: Any) -> Float32[np.ndarray, " obs"]:
        try:
            check(value)
        except DataError as error:
            raise DataError(f"{name} {error}") from None
        row = np.array(gymnasium.spaces.utils.flatten(space, value), np.float32).reshape(-1)
        finite = np.isfinite(row)
        if not finite.all():
            raise DataError(f"{name} holds {row[~finite][0]}: not finite")
        return row

    return read


def to_flag(name: str, value: Any) -> bool:
    """Returns whether an episode ended.

    Raises:
        DataError: the value is no bool, neither Python's nor NumPy's.
    """
    flag = np.asarray(value)
    if flag.dtype != bool or flag.shape:
        raise DataError(f"{name} is {value!r}, not a bool; return bool(...) of a comparison")
    return bool(flag)


def to_reward(value: Any) -> float:
    """Returns a reward.

    Raises:
        DataError: the value is not one real number that is finite in 32 bits.
    """
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS or array.size != 1:
        raise DataError(f"reward {value!r} is not a real number")
    reward = float(array.item())
    if not abs(reward) <= LARGEST:
        raise DataError(f"reward {reward} is not finite in 32 bits")
    return reward


def _checker(space: gymnasium.Space) -> Callable[[Any], None]:
    match space:
        case Dict() | Tuple():
            parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
            return partial(_check_parts, {name: _checker(part) for name, part in parts})
        case Box():
            return partial(_check_numbers, space, space.low, space.high)
        case Discrete():
            return partial(_check_numbers, space, space.start, space.start + space.n - 1)
        case MultiDiscrete():
            return partial(_check_numbers, space, space.start, space.start + space.nvec - 1)
        case MultiBinary():
            return partial(_check_numbers, space, 0, 1)
    return partial(_check_contained, space)


def _check_numbers(space: gymnasium.Space, low: Any, high: Any, value: Any) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS:
        raise DataError(f"is {value!r}, which is no array of numbers")
    if array.shape != space.shape:
        raise DataError(f"has the shape {array.shape}, not {space.shape}, as its space says")
    if space.dtype is None or space.dtype.kind == "f":
        return
    wrong = (array < low) | (array > high) | (array != np.rint(array))
    if isinstance(space, Discrete):  # Gymnasium takes it for an index
        wrong |= array.dtype.kind == "f"
    if wrong.any():
        number, least, most = (each[wrong][0] for each in np.broadcast_arrays(array, low, high))
        raise DataError(f"holds {number}, where its space has integers from {least} to {most}")


def _check_parts(checks: Mapping[Any, Callable[[Any], Any]], value: Any) -> None:
    parts = value if isinstance(value, Mapping) else dict(enumerate(value))
    if parts.keys() != checks.keys():
        raise DataError(f"has the parts {[*parts]}, not {[*checks]}, as its space says")
    for name, check in checks.items():
        check(parts[name])


def _check_contained(space: gymnasium.Space, value: Any) -> None:
    if not space.contains(value):
        raise DataError(f"is {value!r}, which {space} does not contain")
