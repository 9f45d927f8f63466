"""Changes of params.yaml written as text, the keys of its sections, and which of them are read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from quatrain.errors import ConfigError
from quatrain.section import Section
from quatrain.validation import overlaid, sections_of, validate
from tests.conftest import committed

Keys = tuple[str, ...]


def nested(keys: Keys, value: Any) -> dict[str, Any]:
    """Returns an overlay that changes one value."""
    for key in reversed(keys):
        value = {key: value}
    return value


def overlay_of(*changes: str) -> dict[str, Any]:
    """Returns the overlay of changes such as `env.field: {kind: duffing}, seeds: 3`."""
    overlay: dict[str, Any] = {}
    for part in changes:
        for keys, value in YAML(typ="safe").load(f"{{{part}}}").items():
            overlay = overlaid(overlay, nested(tuple(keys.split(".")), value))
    return overlay


def config_of(model: str, *changes: str, files: Mapping[str, Any] | None = None) -> Any:
    """Returns a model's section with changes; `files` are the input files that it may name."""
    raw = overlaid(committed(), {model: overlay_of(*changes)})
    return getattr(validate(raw, (files or {}).__getitem__), model)


def refusal(model: str, *changes: str, files: Mapping[str, Any] | None = None) -> str:
    """Returns the line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        config_of(model, *changes, files=files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def leaves(section: BaseModel, *above: str) -> Iterator[tuple[Keys, Any]]:
    """Yields every key of a section that holds a value, with its value."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, *above, name)
        else:
            yield (*above, name), value


@contextmanager
def unread_keys(schema: type[BaseModel]) -> Iterator[set[str]]:
    """Yields the keys of a section and of all that are in it; those that are read from then on are
    removed.
    """
    sections = {schema, *_inner(schema)}
    unread = {f"{part.__name__}.{name}" for part in sections for name in part.model_fields}

    def get(section: Section, name: str) -> Any:
        unread.difference_update(f"{part.__name__}.{name}" for part in type(section).__mro__)
        return object.__getattribute__(section, name)

    with pytest.MonkeyPatch.context() as patched:
        for part in sections:
            patched.setattr(part, "__getattribute__", get, raising=False)
        yield unread


def _inner(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for name in section.model_fields:
        for inner in sections_of(section, name).values():
            if inner.__module__ != Section.__module__:  # the content of a file
                yield inner
                yield from _inner(inner)
