"""a request to a served model -> its arrays as the model takes them, or one line that says what does not fit."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Input(NamedTuple):
    """What each question holds under a name: numbers of a type and shape, each from `least` to `most`.

    counted: of a padded input, the one before it that tells how many entries of the first axis are looked at; the rest
    may be anything, and is taken to be `least`.
    """

    dtype: type[np.generic]
    shape: tuple[int, ...]
    least: float | np.ndarray
    most: float | np.ndarray
    valid_length_from: str = ""

    @property
    def whole(self) -> bool:
        """Whether no fraction is taken."""
        return issubclass(self.dtype, np.integer)

    @property
    def kind(self) -> str:
        """In words, what it is made of."""
        return "whole numbers" if self.whole else "numbers"


def validate_request(
    model: str, request: Mapping[str, np.ndarray], inputs: Mapping[str, Input]
) -> dict[str, np.ndarray]:
    """The inputs in their order and of their own types, for any number of questions but none.

    Raises:
        ValueError: other inputs, types, shapes or numbers than these; one line says which, and what is right.
    """
    if request.keys() != inputs.keys():
        given = ", ".join(sorted(request)) or "none"
        raise ValueError(
            f"{model}: the request has the inputs {given}; give exactly {', '.join(inputs)}"
        )
    for name, own in inputs.items():
        _refuse_form(f"{model}: {name}", request[name], own)
    counts = {name: len(request[name]) for name in inputs}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise ValueError(f"{model}: the request has {told}; give as many questions in each")
    if not any(counts.values()):
        raise ValueError(
            f"{model}: the request has no question in {', '.join(inputs)}; give at least one"
        )
    return {
        name: _within(f"{model}: {name}", request[name], own, _used(request, name, own))
        for name, own in inputs.items()
    }


def _refuse_form(label: str, array: np.ndarray, own: Input) -> None:
    is_number = array.dtype.kind in ("iu" if own.whole else "iuf")
    if not is_number or not array.ndim or array.shape[1:] != own.shape:
        shape = ", ".join(map(str, ("questions", *own.shape)))
        raise ValueError(f"{label} is {array.dtype}{list(array.shape)}; give {own.kind} [{shape}]")


def _used(request: Mapping[str, np.ndarray], name: str, own: Input) -> np.ndarray:
    """Which entries are looked at, as many axes as the array."""
    if not own.valid_length_from:
        return np.ones((1,) * request[name].ndim, bool)
    used = np.arange(own.shape[0]) < request[own.valid_length_from][:, None]
    return used.reshape(*used.shape, *(1,) * (len(own.shape) - 1))


def _within(label: str, array: np.ndarray, own: Input, used: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for the type: infinite, and refused
        values = array.astype(own.dtype)
    least, most = (
        np.broadcast_to(np.asarray(bound, own.dtype), array.shape)
        for bound in (own.least, own.most)
    )
    compared = (
        array if own.whole else values
    )  # whole numbers too large for the type would wrap round
    refused = np.argwhere(used & ~((compared >= least) & (compared <= most)))
    if len(refused):
        place = tuple(refused[0].tolist())
        where, limits = ", ".join(map(str, place)), f"{least[place]!s}..{most[place]!s}"
        raise ValueError(f"{label}[{where}] is {array[place]!s}; give {own.kind} in {limits}")
    return np.where(used, values, least)
