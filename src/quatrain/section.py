"""What every section of params.yaml has in common: frozen, closed, finite, strictly typed."""

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

NUMBERS, ARRAYS = ".npy", ".npz"
"""How the names of files of numbers and of several arrays end; any other holds text."""


class Section(BaseModel):
    """A part of params.yaml: hashable (so it may be static in `jax.jit`), without unknown keys, NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )


class InputFile(Section):
    """A file that a config names, with its content in its place: the inside sees no path."""

    name: str
    text: str


class NamedArray(Section):
    """An array of a file, with its numbers in C order; NaN and infinity are left to the config to refuse."""

    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(strict=False)  # JSON has lists
    numbers: tuple[float, ...] = Field(strict=False)

    @property
    def nested(self) -> Any:
        """Tuples of tuples, as deep as the shape is long."""
        found: Any = self.numbers
        for size in self.shape[:0:-1]:
            found = tuple(found[start : start + size] for start in range(0, len(found), size))
        return found

    @model_validator(mode="after")
    def _shape_holds_the_numbers(self) -> "NamedArray":
        if math.prod(self.shape) != len(self.numbers):
            raise ValueError(
                f"{self.name}: shape {self.shape} does not hold {len(self.numbers)} numbers; mend one"
            )
        return self


class InputArrays(Section):
    """An .npz file that a config names, with its arrays in its place; what they must be is for the config to say."""

    name: str
    arrays: tuple[NamedArray, ...] = Field(strict=False)


class InputNumbers(Section):
    """An .npy file that a config names, with its numbers in its place; NaN and infinity are left to it to refuse."""

    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    numbers: tuple[float, ...] = Field(strict=False)  # JSON has lists


Content = str | tuple[float, ...] | tuple[NamedArray, ...]
"""Of a file that a config names."""


def names_file(value: object) -> bool:
    """A value is a path, not the name of something built in, if it has a slash or a file ending."""
    return isinstance(value, str) and ("/" in value or value.endswith((".txt", ".csv", ".json")))


Validator = Callable[[object, Any], object]


def _reader(ending: str, kind: str, made: Callable[[str, Any], Section], writer: str) -> Validator:
    """A validator that puts a file's content in the place of its path."""

    def read(
        value: object, info: Any
    ) -> object:  # Any: beartype cannot check pydantic's ValidationInfo
        if not isinstance(value, str):
            return value
        if not value.endswith(ending):
            raise ValueError(f"{value} is no {ending} file; write one with {writer}")
        return made(value, _content(value, kind, info))

    return read


def _read_named(value: object, info: Any) -> object:
    return _read(value, info) if names_file(value) else value


def _read(
    value: object, info: Any
) -> object:  # Any: beartype cannot check pydantic's ValidationInfo
    if not isinstance(value, str):
        return value
    if value.endswith((NUMBERS, ARRAYS)):
        raise ValueError(f"{value} holds numbers; name a text file")
    return InputFile(name=value, text=_content(value, "text", info))


def _content(path: str, kind: str, info: Any) -> Any:
    read: Callable[[object], Content] | None = (info.context or {}).get("read_input")
    if read is None:
        given = f"{{'name': ..., {kind!r}: ...}}"
        raise ValueError(f"{path!r} is a path; give {given} in its place, or a reader as context")
    return read(path)


NameOrFile = Annotated[str | InputFile, BeforeValidator(_read_named)]
"""The name of something built in, or a path whose content the reader of params.yaml puts in its place."""

FileOrNone = Annotated[InputFile | None, BeforeValidator(_read, json_schema_input_type=str | None)]
"""A path whose content the reader of params.yaml puts in its place, or null."""

_read_numbers = _reader(
    NUMBERS, "numbers", lambda name, found: InputNumbers(name=name, numbers=found), "numpy.save"
)
_read_arrays = _reader(
    ARRAYS, "arrays", lambda name, found: InputArrays(name=name, arrays=found), "numpy.savez"
)

NumbersOrNone = Annotated[
    InputNumbers | None, BeforeValidator(_read_numbers, json_schema_input_type=str | None)
]
"""A path to an .npy file whose numbers the reader of params.yaml puts in its place, or null."""

ArraysOrNone = Annotated[
    InputArrays | None, BeforeValidator(_read_arrays, json_schema_input_type=str | None)
]
"""A path to an .npz file whose arrays the reader of params.yaml puts in its place, or null."""
