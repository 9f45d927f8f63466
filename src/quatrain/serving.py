"""the body of a POST, or arrays by name -> answers of a served model; or one line that names the
error.

Nothing is converted to fit: true is no number, "3" is none, and 3.0 is no index.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

MEDIA_TYPE = "application/json"
KEY = "inputs"
# Of a body, which is read and answered in a fraction of a second; arrays may hold more.
MOST_QUESTIONS = 1000
# Read in a fraction of a second, whatever is in it.
MOST_BYTES = 4 * 2**20
# Longer values, and lists of names, are cut in messages.
LONGEST_SHOWN = 60
LONGEST_LIST = 200

Named = dict[str, np.ndarray]


@dataclass(frozen=True)
class Input:
    """Holds the dtype and shape of one question, and the inclusive range of its numbers.

    valid_length_from: name of the input that holds the number of valid entries of the first axis;
    padding is ignored, and replaced by `least`.
    """

    dtype: type[np.generic]
    shape: tuple[int, ...]
    least: int | float | np.ndarray
    most: int | float | np.ndarray
    valid_length_from: str = ""

    @property
    def is_integer(self) -> bool:
        return issubclass(self.dtype, np.integer)

    @property
    def kinds(self) -> str:
        """Returns the kinds of dtypes whose numbers fit, as NumPy names them."""
        return "iu" if self.is_integer else "iuf"

    @property
    def kind(self) -> str:
        return "whole numbers" if self.is_integer else "numbers"

    @property
    def form(self) -> str:
        return f"{self.kind} [{', '.join(map(str, ('questions', *self.shape)))}]"

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the least and the most in the dtype; those that differ have the whole shape,
        because NumPy is slow where a last axis is short.
        """
        least, most = (
            np.full(self.shape if np.ndim(limit) else (), limit, self.dtype)
            for limit in (self.least, self.most)
        )
        return least, most


class Served(NamedTuple):
    """Holds what a model answers by: its inputs, and a function of them, which has the weights.

    sample: draws actions of the policy that explores; None where there is no such policy.
    """

    inputs: Mapping[str, Input]
    compute: Callable[[Named], Named]
    sample: Callable[[Named, np.random.Generator], np.ndarray] | None = None


def answer(
    model: str, served: Served, request: Any, draws: np.random.Generator | None = None
) -> Named:
    """Answers a request: a mapping of names to arrays, or to nested lists as JSON has them.

    draws: samples the actions by this generator, and answers nothing else.

    Raises:
        ValueError: names, types, shapes or numbers are invalid, or so large that an answer is not
            finite; one line names the error and the remedy.
    """
    question = validate_request(model, request, served.inputs)
    if draws is not None:
        if served.sample is None:
            raise ValueError(f"{model} has no policy to sample from; leave deterministic=True")
        return {"action": served.sample(question, draws)}
    with np.errstate(all="ignore"):  # what is not finite is said
        answers = served.compute(question)
    for name, array in answers.items():
        if not np.isfinite(array).all():
            first = int(np.argwhere(~np.isfinite(array))[0][0])
            raise ValueError(
                f"{model}: the numbers of question {first} are so large that its {name} is not "
                "finite; give numbers such as the environment returns"
            )
    return answers


def validate_request(model: str, request: Any, inputs: Mapping[str, Input]) -> Named:
    """Returns copies of the inputs in their order and dtypes.

    Raises:
        ValueError: names, types, shapes or numbers are invalid.
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
    with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, an error
        return {
            name: _cast(f"{model}: {name}", arrays[name], spec, arrays.get(spec.valid_length_from))
            for name, spec in inputs.items()
        }


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
    is_array = isinstance(values, np.ndarray) and values.dtype.kind in spec.kinds
    questions = values if is_array else _plain(values)
    if is_array and (not values.ndim or values.shape[1:] != spec.shape):
        raise ValueError(f"{label} is {values.dtype}{list(values.shape)}; give {spec.form}")
    if not is_array and not isinstance(questions, list):
        raise ValueError(f"{label} is {shown(questions)}; give {spec.form}")
    if is_array:
        return values
    _check_lists(label, questions, spec)
    array = np.array(questions, np.int64 if spec.is_integer else np.float64)
    return array.reshape(len(questions), *spec.shape)


def _plain(value: Any) -> Any:
    """Returns arrays and their numbers as lists and numbers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def _check_lists(label: str, values: Any, spec: Input, index: tuple[int, ...] = ()) -> None:
    """Raises ValueError for the first part of nested lists that has not the form of the input."""
    depth = len(index)
    if not isinstance(values, list) or (depth and len(values) != spec.shape[depth - 1]):
        raise _misfit(label, index, values, spec)
    if depth < len(spec.shape):
        for place, inner in enumerate(values):
            _check_lists(label, _plain(inner), spec, (*index, place))
        return
    kinds = {int} if spec.is_integer else {int, float}
    most = np.iinfo(np.int64).max if spec.is_integer else int(np.finfo(np.float64).max)
    row = values if set(map(type, values)) <= kinds else [_plain(value) for value in values]
    for place, value in enumerate(row):
        # Whole numbers of any length are read.
        if type(value) not in kinds or (type(value) is int and abs(value) > most):
            raise _misfit(label, (*index, place), value, spec)


def _misfit(label: str, index: tuple[int, ...], value: object, spec: Input) -> ValueError:
    """Returns the error of one value; index: of its question and in it."""
    allowed = spec.form
    if len(index) > len(spec.shape):
        least, most = (np.broadcast_to(limit, spec.shape)[index[1:]] for limit in spec.limits)
        allowed = f"{spec.kind} in {least!s}..{most!s}"
    text = shown(value) if not isinstance(value, np.generic) else str(value)
    return ValueError(f"{label}[{', '.join(map(str, index))}] is {text}; give {allowed}")


def _cast(label: str, array: np.ndarray, spec: Input, lengths: np.ndarray | None) -> np.ndarray:
    """Returns a copy in the dtype of the input, with padding replaced; raises ValueError for the
    first number out of range.
    """
    # Integers too large for the dtype would wrap around, so they are compared before the cast.
    compared = array if spec.is_integer else array.astype(spec.dtype)
    least, most = spec.limits
    within = (compared >= least) & (compared <= most)
    padding = np.zeros((), bool)
    if lengths is not None:
        padding = np.arange(spec.shape[0]) >= lengths[:, None]
        padding = padding.repeat(math.prod(spec.shape[1:]), 1).reshape(array.shape)
        within |= padding
    if not within.all():
        index = tuple(np.argwhere(~within)[0].tolist())
        raise _misfit(label, index, array[index], spec)
    values = compared.astype(spec.dtype, copy=compared is array)
    np.copyto(values, least, where=padding)
    return values


# Bodies.


def read_body(content_type: str | None, body: bytes) -> Any:
    """Returns what the body has under `inputs`, as `answer` expects it.

    Raises:
        ValueError: the body is too large, another format, ambiguous, has something else in it, or
            more than MOST_QUESTIONS questions.
    """
    media = (content_type or "").partition(";")[0].strip().lower()
    if media != MEDIA_TYPE:
        raise ValueError(f"the Content-Type is {shown(media)}; send {MEDIA_TYPE}")
    if len(body) > MOST_BYTES:
        raise ValueError(
            f"the body has {len(body):,} bytes; send at most {MOST_BYTES:,}, in several requests"
        )
    content = _parse(body)
    remedy = f'send {{"{KEY}": {{name: values, ...}}}}'
    if not isinstance(content, dict):
        raise ValueError(f"the body is {shown(content)}; {remedy}")
    params = content.pop("params", None)
    if params is not None and params != {}:
        raise ValueError(f"params is {shown(params)}; the model has none: leave it out")
    if content.keys() != {KEY}:
        actual = cut(", ".join(content)) or "nothing"
        raise ValueError(f"the body has {actual}; {remedy}, and nothing else")
    inputs = content[KEY]
    for name, questions in inputs.items() if isinstance(inputs, dict) else ():
        if isinstance(questions, list) and len(questions) > MOST_QUESTIONS:
            raise ValueError(
                f"{cut(name)} has {len(questions):,} questions; "
                f"give at most {MOST_QUESTIONS:,} at a time"
            )
    return inputs


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}; send JSON") from None
    except RecursionError:
        raise ValueError(
            "the body nests lists or objects too deeply; send lists as deep as the input's shape"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):  # readers differ in which one counts
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{shown(twice)} is twice in one object")
    return content
