"""results that a command measures -> JSON with a line per item, and back."""

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pipeline.judging.scores import first_error
from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

# Significant digits of a stored number.
DIGITS = 5
Form = TypeVar("Form")


def read_file(root: Path, path: Path, form: TypeAdapter[Form], command: str) -> Form | None:
    """Reads a file below `root` that a command writes; None if there is none.

    Raises:
        DataError: the file has another form.
    """
    if not (root / path).exists():
        return None
    try:
        return form.validate_python(folders.read_json(root / path))
    except ValidationError as error:
        raise DataError(f"{path}: {first_error(error)}; `{command}` writes it anew") from None


def write_lines(path: Path, value: Any, depth: int) -> None:
    """Writes `as_json(value)` with a line per item of its `depth` outer levels."""
    write_durably(path, f"{_lines(as_json(value), depth)}\n".encode())


def _lines(value: Any, depth: int, indent: str = "\n") -> str:
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = f"{indent} "
    if isinstance(value, list):
        items = [_lines(item, depth - 1, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{indent}]"
    items = [f"{json.dumps(key)}: {_lines(item, depth - 1, inner)}" for key, item in value.items()]
    return f"{{{inner}{f',{inner}'.join(items)}{indent}}}"


def as_json(value: Any) -> Any:
    """Returns named tuples as dictionaries without the fields that have their default value."""
    if isinstance(value, float | np.number):
        return float(f"{value:.{DIGITS}g}")
    if hasattr(value, "_fields"):
        defaults = value._field_defaults
        return {
            key: as_json(item)
            for key, item in value._asdict().items()
            if key not in defaults or item != defaults[key]
        }
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_json(item) for item in value]
    return value
