"""text of a YAML file -> a mapping, or one line that says where it is wrong."""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    ScalarEvent,
)
from ruamel.yaml.nodes import ScalarNode

from quatrain.errors import ConfigError, QuatrainError

MAX_DEPTH = 20
# Numbers that all versions and readers of YAML take for the same, but for 1e3, text in YAML 1.1.
NUMBER = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.I
)


def parse_mapping(name: str, text: str) -> dict[str, Any]:
    """Returns a YAML 1.2 mapping (as DVC reads it) with names as keys, and without what versions or
    readers of YAML take for different things: directives, tags, aliases, merge keys, duplicate
    keys, dates, numbers such as 010 or 1_000, a second document. `name` is that of the file.

    Raises:
        ConfigError: the text holds anything else.
    """
    try:
        _check_events(name, text)
        raw = YAML(typ="safe", pure=True).load(text)
    except QuatrainError:  # an interruption, too, which is raised anywhere
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(f"{error.context or ''} {error.problem or ''}".split())[:200]
        raise ConfigError(f"{name}{place}: {reason}") from None
    except Exception as error:  # whatever ruamel raises for odd texts
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(raw, dict):
        content = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigError(
            f"{name}: {content}; expected `key: value` lines; `git checkout {name}` restores it"
        )
    _check_keys(name, raw)
    return raw


def _check_events(name: str, text: str) -> None:
    yaml = YAML(typ="safe", pure=True)
    depth = 0
    for event in yaml.parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        reason = _reason(yaml, event, depth)
        if reason:
            raise ConfigError(f"{name} line {event.start_mark.line + 1}: {reason}")


def _reason(yaml: YAML, event: Any, depth: int) -> str:
    """Returns why an event is refused, or nothing."""
    if isinstance(event, DocumentStartEvent) and (
        event.tags or event.version not in (None, (1, 2))
    ):
        return "directives are not allowed: the file is YAML 1.2; remove them"
    if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
        return "anchors and aliases are not allowed; write the value out"
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if getattr(event, "tag", None):
        return f"tag {event.tag[:60]} is not allowed; write a plain value"
    if not isinstance(event, ScalarEvent) or not event.implicit[0]:
        return ""
    tag = str(yaml.resolver.resolve(ScalarNode, event.value, event.implicit))
    kind = tag.rpartition(":")[-1]
    value = event.value[:60]
    if kind in ("int", "float") and not NUMBER.fullmatch(event.value):
        return f"readers of YAML take {value} for different numbers; write decimal digits"
    if kind not in ("int", "float", "str", "bool", "null"):
        return f"{value} is a YAML {kind}; quote it as text: '{value}'"
    return ""


def _check_keys(name: str, value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _check_keys(name, item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ConfigError(
                    f"{name}: key {key!r} is of type {type(key).__name__}; write a name"
                )
            _check_keys(name, inner)
