"""content <-> bytes of a file: safetensors, JSON, text, PNG. Equal content gives equal bytes."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError

ARRAYS = ".safetensors"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PARSER_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    ArithmeticError,
    RuntimeError,  # brackets nested too deep
    SafetensorError,
)

Arrays = dict[str, np.ndarray]
DType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
# No part of a name begins with a dot, so that none leads out of a folder.
ArrayName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$")
]


class FormatError(Exception):
    """Says why content or bytes are not of the format that a file's name announces."""


class DeclaredArray(BaseModel):
    """Declares dtype and shape of an array before its file is parsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    dtype: DType
    shape: list[Annotated[int, Field(ge=0, lt=2**48)]] = Field(max_length=32)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Specs = Mapping[str, DeclaredArray]


class Format(NamedTuple):
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, Specs], Any]


def encode(name: str, content: Any) -> tuple[bytes, dict[str, Any]]:
    """Returns the bytes of a file of this name, and the declaration of its arrays as JSON.

    Raises:
        FormatError: the content does not fit the name's ending, or is not finite.
    """
    file_format = _format(name)
    try:
        if PurePath(name).suffix != ARRAYS:
            return file_format.encode(content), {}
        arrays = {key: _portable(key, content[key]) for key in sorted(content)}
        return file_format.encode(arrays), {
            key: _spec_of(array).model_dump() for key, array in arrays.items()
        }
    except PARSER_ERRORS as error:
        raise FormatError(f"cannot be written ({_one_line(error)})") from None


def decode(name: str, data: bytes, declared: Specs) -> Any:
    """Returns the content of a file of this name; arrays are exactly those declared, finite and
    writable.

    Raises:
        FormatError: the bytes are not of this format, or differ from the declaration.
    """
    file_format = _format(name)
    if sum(spec.nbytes for spec in declared.values()) > len(data):
        raise FormatError(f"is declared to hold more than its {len(data):,} bytes")
    try:
        content = file_format.decode(data, declared)
        for key, spec in declared.items():
            _verify(key, content[key], spec)
    except PARSER_ERRORS as error:
        raise FormatError(f"cannot be read ({_one_line(error)})") from None
    return content


def _format(name: str) -> Format:
    suffix = PurePath(name).suffix
    if suffix not in FORMATS:
        raise FormatError(f"has an unknown ending; known: {', '.join(FORMATS)}")
    return FORMATS[suffix]


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


# Arrays.


def _portable(name: str, value: Any) -> np.ndarray:
    """Returns an array in C order and native byte order; safetensors would write other orders as
    they are in memory.
    """
    array = np.asarray(value, order="C")
    if array.dtype.name not in get_args(DType):
        raise FormatError(
            f"array {name!r} has dtype {array.dtype}; known: {', '.join(get_args(DType))}"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    _verify(name, array, _spec_of(array))
    return array


def _spec_of(array: np.ndarray) -> DeclaredArray:
    return DeclaredArray.model_validate({"dtype": array.dtype.name, "shape": list(array.shape)})


def _verify(name: str, array: np.ndarray, spec: DeclaredArray) -> None:
    if array.dtype.name != spec.dtype or list(array.shape) != spec.shape:
        raise FormatError(
            f"array {name!r} is "
            f"{array.dtype} {list(array.shape)}"
            f", but declared as {spec.dtype} {spec.shape}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FormatError(f"array {name!r} holds NaN or infinity")


def _from_safetensors(data: bytes, declared: Specs) -> Arrays:
    arrays = safetensors.numpy.load(data)
    differing = sorted(arrays.keys() ^ declared.keys())
    if differing:
        raise FormatError(f"does not hold exactly the declared arrays: {differing}")
    return arrays


# JSON, text, figures.


def to_json(value: Any) -> bytes:
    return (
        json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    ).encode()


def null_if_not_finite(scores: Mapping[str, float]) -> dict[str, float | None]:
    """Returns the scores by name with None (JSON null) for NaN and infinity, which JSON does not
    know.
    """
    return {name: value if math.isfinite(value) else None for name, value in sorted(scores.items())}


def _from_json(data: bytes, _declared: Specs) -> Any:
    return json.loads(
        data.decode(),
        object_pairs_hook=_without_equal_keys,
        parse_constant=_finite,
        parse_float=_finite,
    )


def _without_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"holds the key {twice!r} twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FormatError(f"holds the number {text[:40]}, which is not finite")
    return number


def _to_png(figure: bytes) -> bytes:
    if not figure.startswith(PNG_SIGNATURE):
        raise FormatError("does not begin as a PNG file does")
    return figure


TEXT = Format(lambda text: text.encode(), lambda data, _: data.decode())
FORMATS = {
    ARRAYS: Format(safetensors.numpy.save, _from_safetensors),
    ".json": Format(to_json, _from_json),
    ".csv": TEXT,
    ".txt": TEXT,
    ".png": Format(_to_png, lambda data, _: _to_png(data)),
}
