"""What every section of params.yaml has in common: frozen, closed, finite, strictly typed."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

NUMBERS = ".npy"
"""How the name of a file of numbers ends; any other holds text."""
Content = str | tuple[float, ...]
"""Of a file that a config names."""


class Section(BaseModel):
    """A part of params.yaml: hashable (so it may be static in `jax.jit`), without unknown keys, NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )


class InputFile(Section):
    """A file that a config names, with its content in its place: the inside sees no path."""

    name: str
    text: str


class InputNumbers(Section):
    """An .npy file that a config names, with its numbers in its place; NaN and infinity are left to it to refuse."""

    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    numbers: tuple[float, ...] = Field(strict=False)  # JSON has lists


def names_file(value: object) -> bool:
    """A value is a path, not the name of something built in, if it has a slash or a file ending."""
    return isinstance(value, str) and ("/" in value or value.endswith((".txt", ".csv", ".json")))


def _read_named(value: object, info: Any) -> object:
    return _read(value, info) if names_file(value) else value


def _read(value: object, info: Any) -> object:  # Any: beartype cannot check pydantic's ValidationInfo
    if not isinstance(value, str):
        return value
    if value.endswith(NUMBERS):
        raise ValueError(f"{value} holds numbers; name a text file")
    return InputFile(name=value, text=_content(value, "text", info))


def _read_numbers(value: object, info: Any) -> object:
    if not isinstance(value, str):
        return value
    if not value.endswith(NUMBERS):
        raise ValueError(f"{value} is no {NUMBERS} file; write one with numpy.save")
    return InputNumbers(name=value, numbers=_content(value, "numbers", info))


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

NumbersOrNone = Annotated[InputNumbers | None, BeforeValidator(_read_numbers, json_schema_input_type=str | None)]
"""A path to an .npy file whose numbers the reader of params.yaml puts in its place, or null."""
