"""Sections of params.yaml and the keys in them, as tests of configs walk through them."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

Keys = tuple[str, ...]


def nested(keys: Keys, value: Any) -> dict[str, Any]:
    """Returns an overlay that changes one value."""
    for key in reversed(keys):
        value = {key: value}
    return value


def leaves(section: BaseModel, *above: str) -> Iterator[tuple[Keys, Any]]:
    """Yields every key of a section that holds a value, with its value."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, *above, name)
        else:
            yield (*above, name), value
