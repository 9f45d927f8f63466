"""What every section of params.yaml has in common: frozen, closed, finite, strictly typed."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A part of params.yaml: hashable (so it may be static in `jax.jit`), without unknown keys, NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )


class InputFile(Section):
    """A file that a config names, with its content in its place: the inside sees no path."""

    name: str
    text: str


def names_file(value: object) -> bool:
    """A value is a path, not the name of something built in, if it has a slash or a file ending."""
    return isinstance(value, str) and ("/" in value or value.endswith((".txt", ".csv", ".json")))


def _read_named(value: object, info: Any) -> object:
    return _read(value, info) if names_file(value) else value


def _read(value: object, info: Any) -> object:  # Any: beartype cannot check pydantic's ValidationInfo
    if not isinstance(value, str):
        return value
    read: Callable[[object], str] | None = (info.context or {}).get("read_input")
    if read is None:
        raise ValueError(f"{value!r} is a path; give {{'name': ..., 'text': ...}} in its place, or a reader as context")
    return InputFile(name=value, text=read(value))


NameOrFile = Annotated[str | InputFile, BeforeValidator(_read_named)]
"""The name of something built in, or a path whose content the reader of params.yaml puts in its place."""

FileOrNone = Annotated[InputFile | None, BeforeValidator(_read, json_schema_input_type=str | None)]
"""A path whose content the reader of params.yaml puts in its place, or null."""
