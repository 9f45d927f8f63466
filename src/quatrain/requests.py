"""a request to a served model -> its arrays in the model's dtypes, or one line that names the
error; an answer -> the same answer, if all of it is finite.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

MOST_QUESTIONS = 1000
# Longer values, and lists of names, are cut in messages.
LONGEST_SHOWN = 60
LONGEST_LIST = 200
# What else may stand where JSON has a list or a number, and can say what it is in these.
ARRAY_LIKE = "tolist"


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

    @property
    def form(self) -> str:
        """Returns the kind of numbers, and their shape."""
        return f"{self.kind} [{', '.join(map(str, ('questions', *self.shape)))}]"

    def range_at(self, index: tuple[int, ...]) -> str:
        """Returns which numbers one entry may have; index: of its question and in it."""
        least, most = (
            np.broadcast_to(np.asarray(limit, self.dtype), self.shape)[index[1:]]
            for limit in (self.least, self.most)
        )
        return f"{self.kind} in {least!s}..{most!s}"


def validate_request(model: str, request: Any, inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Returns the inputs in their order and dtypes, for 1..MOST_QUESTIONS questions.

    request: a mapping of names to arrays, or to nested lists as JSON has them. Nothing is
    converted to fit: true is no number, "3" is none, and 3.0 is no index.

    Raises:
        ValueError: names, types, shapes or numbers are invalid; one line names the error and the
            remedy.
    """
    expected = ", ".join(inputs)
    if not isinstance(request, Mapping):
        raise ValueError(
            f"{model}: the request is {shown(request)}; give inputs by name: {expected}"
        )
    if request.keys() != inputs.keys():
        actual = cut(", ".join(sorted(map(str, request))), LONGEST_LIST) or "none"
        raise ValueError(f"{model}: the request has the inputs {actual}; give exactly {expected}")
    arrays = {
        name: _to_array(f"{model}: {name}", request[name], spec) for name, spec in inputs.items()
    }
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        actual = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise ValueError(f"{model}: the request has {actual}; give as many questions in each")
    if not any(counts.values()):
        raise ValueError(f"{model}: the request has no question in {expected}; give at least one")
    return {
        name: _cast(f"{model}: {name}", arrays[name], spec, _valid_entries(arrays, name, spec))
        for name, spec in inputs.items()
    }


def check_answer(model: str, answer: Mapping[str, np.ndarray]) -> None:
    """Checks that the model could compute with the numbers that it was given.

    Raises:
        ValueError: something in the answer is not finite.
    """
    for name, array in answer.items():
        infinite = ~np.isfinite(array)
        if infinite.any():
            question = int(np.argwhere(infinite)[0][0])
            raise ValueError(
                f"{model}: the numbers of question {question} are so large that its {name} is not "
                "finite; give numbers such as the environment returns"
            )


def shown(value: object) -> str:
    """Returns what stands in a request, in the words of JSON, in one line and never long."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, list | dict | tuple) and len(value):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 4 * LONGEST_SHOWN:
        return f"a whole number of some {value.bit_length() * 0.30103 + 1:.0f} digits"
    return cut(f'"{value}"' if isinstance(value, str) else repr(value))


def cut(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Returns a text in one line, and its beginning if it is long."""
    line = " ".join(text[: 2 * longest].split())
    return line if len(line) <= longest else f"{line[:longest]}..."


def _to_array(label: str, values: Any, spec: Input) -> np.ndarray:
    """Returns an array of int64 or float64 (or of its own dtype), of the input's shape."""
    if isinstance(values, np.ndarray) and values.dtype.kind in ("iu" if spec.is_integer else "iuf"):
        if not values.ndim or values.shape[1:] != spec.shape:
            raise ValueError(f"{label} is {values.dtype}{list(values.shape)}; give {spec.form}")
        _check_count(label, values)
        return values
    questions = _plain(values)
    if not isinstance(questions, list):
        raise ValueError(f"{label} is {shown(questions)}; give {spec.form}")
    _check_count(label, questions)
    numbers = _numbers(label, questions, spec)
    try:
        array = np.array(numbers, np.int64 if spec.is_integer else np.float64)
    except OverflowError:  # whole numbers of any length are read
        most = np.iinfo(np.int64).max if spec.is_integer else int(np.finfo(np.float64).max)
        place = next(place for place, number in enumerate(numbers) if not -most <= number <= most)
        raise _misfit(label, (len(questions), *spec.shape), place, numbers[place], spec) from None
    return array.reshape(len(questions), *spec.shape)


def _check_count(label: str, questions: Sequence[Any] | np.ndarray) -> None:
    if len(questions) > MOST_QUESTIONS:
        raise ValueError(
            f"{label} has {len(questions):,} questions; give at most {MOST_QUESTIONS:,} at a time"
        )


def _plain(value: Any) -> Any:
    """Returns arrays and their numbers as lists and numbers."""
    value = value.tolist() if hasattr(value, ARRAY_LIKE) else value
    return list(value) if isinstance(value, tuple) else value


def _numbers(label: str, questions: list[Any], spec: Input) -> list[Any]:
    """Returns the numbers of nested lists, row by row."""
    level, shape = questions, (len(questions), *spec.shape)
    for axis, size in enumerate(spec.shape, 1):
        level = _level(level)
        if not (set(map(type, level)) <= {list} and set(map(len, level)) <= {size}):
            fits = (isinstance(item, list) and len(item) == size for item in level)
            place = next(place for place, fit in enumerate(fits) if not fit)
            raise _misfit(label, shape[:axis], place, level[place], spec)
        level = list(chain.from_iterable(level))
    level = _level(level)
    kinds = {int} if spec.is_integer else {int, float}
    if not set(map(type, level)) <= kinds:
        place = next(place for place, item in enumerate(level) if type(item) not in kinds)
        raise _misfit(label, shape, place, level[place], spec)
    return level


def _level(items: list[Any]) -> list[Any]:
    """Returns the items of one axis, without arrays among them."""
    plain = set(map(type, items)) <= {list, int, float}
    return items if plain else [_plain(item) for item in items]


def _misfit(
    label: str, shape: tuple[int, ...], place: int, value: object, spec: Input
) -> ValueError:
    """Returns the error of one value; place: its number among those of this shape."""
    index = tuple(int(number) for number in np.unravel_index(place, shape))
    allowed = spec.range_at(index) if len(shape) == 1 + len(spec.shape) else spec.form
    return ValueError(f"{label}[{', '.join(map(str, index))}] is {shown(value)}; give {allowed}")


def _valid_entries(request: Mapping[str, np.ndarray], name: str, spec: Input) -> np.ndarray:
    """Returns which entries are not padding, broadcastable to the array."""
    if not spec.valid_length_from:
        return np.ones((1,) * request[name].ndim, bool)
    lengths = request[spec.valid_length_from]
    valid = np.arange(spec.shape[0]) < lengths[:, None]
    return valid.reshape(*valid.shape, *(1,) * (len(spec.shape) - 1))


def _cast(label: str, array: np.ndarray, spec: Input, valid: np.ndarray) -> np.ndarray:
    """Casts the array; raises ValueError for the first number out of range."""
    with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, an error
        values = array.astype(spec.dtype)
    least = np.broadcast_to(np.asarray(spec.least, spec.dtype), array.shape)
    most = np.broadcast_to(np.asarray(spec.most, spec.dtype), array.shape)
    # Integers too large for the dtype would wrap around, so they are compared before the cast.
    compared = array if spec.is_integer else values
    invalid = np.argwhere(valid & ~((compared >= least) & (compared <= most)))
    if len(invalid):
        index = tuple(invalid[0].tolist())
        position = ", ".join(map(str, index))
        raise ValueError(f"{label}[{position}] is {array[index]!s}; give {spec.range_at(index)}")
    return np.where(valid, values, least)
