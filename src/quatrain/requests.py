"""a request to a served model -> its arrays in the model's dtypes, or one line that names the
error.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Input(NamedTuple):
    """Holds the dtype and shape of one question, and the inclusive range `least` to `most` of its
    numbers.

    valid_length_from: name of the input that holds the number of valid entries of the first axis;
    padding is ignored, and replaced by `least`.
    """

    dtype: type[np.generic]
    shape: tuple[int, ...]
    least: float | np.ndarray
    most: float | np.ndarray
    valid_length_from: str = ""

    @property
    def is_integer(self) -> bool:
        return issubclass(self.dtype, np.integer)

    @property
    def kind(self) -> str:
        """Returns the kind of numbers in words."""
        return "whole numbers" if self.is_integer else "numbers"


def validate_request(
    model: str,
    request: Mapping[str, np.ndarray],
    inputs: Mapping[str, Input],
) -> dict[str, np.ndarray]:
    """Returns the inputs in their order and dtypes, for any positive number of questions.

    Raises:
        ValueError: names, dtypes, shapes or numbers are invalid; one line names the error and the
            remedy.
    """
    expected = ", ".join(inputs)
    if request.keys() != inputs.keys():
        actual = ", ".join(sorted(request)) or "none"
        raise ValueError(f"{model}: the request has the inputs {actual}; give exactly {expected}")
    for name, spec in inputs.items():
        _check_shape(f"{model}: {name}", request[name], spec)
    counts = {name: len(request[name]) for name in inputs}
    if len(set(counts.values())) > 1:
        actual = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise ValueError(f"{model}: the request has {actual}; give as many questions in each")
    if not any(counts.values()):
        raise ValueError(f"{model}: the request has no question in {expected}; give at least one")
    return {
        name: _cast(f"{model}: {name}", request[name], spec, _valid_entries(request, name, spec))
        for name, spec in inputs.items()
    }


def _check_shape(label: str, array: np.ndarray, spec: Input) -> None:
    is_number = array.dtype.kind in ("iu" if spec.is_integer else "iuf")
    if not is_number or not array.ndim or array.shape[1:] != spec.shape:
        shape = ", ".join(map(str, ("questions", *spec.shape)))
        actual = f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"{label} is {actual}; give {spec.kind} [{shape}]")


def _valid_entries(request: Mapping[str, np.ndarray], name: str, spec: Input) -> np.ndarray:
    """Returns which entries are not padding, broadcastable to the array."""
    if not spec.valid_length_from:
        return np.ones((1,) * request[name].ndim, bool)
    lengths = request[spec.valid_length_from]
    valid = np.arange(spec.shape[0]) < lengths[:, None]
    return valid.reshape(*valid.shape, *(1,) * (len(spec.shape) - 1))


def _cast(label: str, array: np.ndarray, spec: Input, valid: np.ndarray) -> np.ndarray:
    """Casts the array; raises ValueError for the first number out of range."""
    with np.errstate(over="ignore"):  # numbers too large for the dtype become infinite, an error
        values = array.astype(spec.dtype)
    least = np.broadcast_to(np.asarray(spec.least, spec.dtype), array.shape)
    most = np.broadcast_to(np.asarray(spec.most, spec.dtype), array.shape)
    # Integers too large for the dtype would wrap around, so they are compared before the cast.
    compared = array if spec.is_integer else values
    invalid = np.argwhere(valid & ~((compared >= least) & (compared <= most)))
    if len(invalid):
        index = tuple(invalid[0].tolist())
        position = ", ".join(map(str, index))
        raise ValueError(
            f"{label}[{position}] is {array[index]!s}; "
            f"give {spec.kind} in {least[index]!s}..{most[index]!s}"
        )
    return np.where(valid, values, least)
