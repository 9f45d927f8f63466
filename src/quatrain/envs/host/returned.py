"""what an environment returned -> numbers, or an error where its spaces do not allow them"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from jaxtyping import Bool, Float32, Integer, Shaped

from quatrain.errors import DataError

FLAGS = (bool, np.bool_)
LARGEST = float(np.finfo(np.float32).max)
Integers = Integer[np.ndarray, "*shape"] | Bool[np.ndarray, "*shape"]


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
    if isinstance(value, FLAGS):
        return bool(value)
    if isinstance(value, np.ndarray) and value.dtype == bool and not value.shape:
        return bool(value)
    raise DataError(f"{name} is {value!r}, not a bool; return bool(...) of a comparison")


def to_reward(value: Any) -> float:
    """Returns a reward.

    Raises:
        DataError: the value is not one real number that is finite in 32 bits.
    """
    if not isinstance(value, float):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.size != 1:
            raise DataError(f"reward {value!r} is not a real number")
        value = float(array.item())
    if not abs(value) <= LARGEST:
        raise DataError(f"reward {value} is not finite in 32 bits")
    return value


def _checker(space: gymnasium.Space) -> Callable[[Any], Any]:
    match space:
        case Dict() | Tuple():
            parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
            return partial(_check_parts, {name: _checker(part) for name, part in parts})
        case Box() if space.dtype.kind == "f":
            return partial(_to_array, space.shape)
        case Box():
            return partial(_check_integers, space.low, space.high)
        case Discrete():
            return partial(_check_index, int(space.start), int(space.start + space.n) - 1)
        case MultiDiscrete():
            return partial(_check_integers, space.start, space.start + space.nvec - 1)
        case MultiBinary():
            ends = np.zeros(space.shape, int), np.ones(space.shape, int)
            return partial(_check_integers, *ends)
    return partial(_check_contained, space)


def _to_array(shape: tuple[int, ...], value: Any) -> Shaped[np.ndarray, "*shape"]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise DataError(f"is {value!r}, which is no array of numbers")
    if array.shape != shape:
        raise DataError(f"has the shape {array.shape}, not {shape}, as its space says")
    return array


def _check_integers(low: Integers, high: Integers, value: Any) -> None:
    array = _to_array(low.shape, value)
    wrong = (array < low) | (array > high)
    if array.dtype.kind == "f":
        wrong |= array != np.rint(array)
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(_no_integer(array.flat[place], low.flat[place], high.flat[place]))


def _check_index(low: int, high: int, value: Any) -> None:
    index = value if type(value) is int else _to_array((), value).item()
    if not (isinstance(index, int) and low <= index <= high):
        raise DataError(_no_integer(index, low, high))


def _no_integer(value: Any, low: Any, high: Any) -> str:
    return f"holds {value}, where its space has integers from {low} to {high}"


def _check_parts(checks: Mapping[Any, Callable[[Any], Any]], value: Any) -> None:
    parts = value if isinstance(value, Mapping) else dict(enumerate(value))
    if parts.keys() != checks.keys():
        raise DataError(f"has the parts {[*parts]}, not {[*checks]}, as its space says")
    for name, check in checks.items():
        check(parts[name])


def _check_contained(space: gymnasium.Space, value: Any) -> None:
    if not space.contains(value):
        raise DataError(f"is {value!r}, which {space} does not contain")
