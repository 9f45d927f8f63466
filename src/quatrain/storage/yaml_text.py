"""text of a YAML file -> a mapping, or one line that says where it is wrong."""

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from quatrain.errors import ConfigError

MAX_DEPTH = 20


def parse_mapping(name: str, text: str) -> dict[str, Any]:
    """Returns a YAML 1.2 mapping (as DVC reads it) without tags, aliases, duplicate keys or a
    second document; `name` is that of the file.

    Raises:
        ConfigError: the text holds anything else.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        _check_events(name, yaml.parse(text))
        raw = yaml.load(text)
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(str(error.problem or error.context).split())
        raise ConfigError(f"{name}{place}: {reason}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{name}: not YAML: {reason}") from None
    if not isinstance(raw, dict):
        content = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigError(
            f"{name}: {content}; expected `key: value` lines; `git checkout {name}` restores it"
        )
    return raw


def _check_events(name: str, events: Any) -> None:
    depth = 0
    documents = 0
    for event in events:
        line = f"{name} line {event.start_mark.line + 1}"
        tag = getattr(event, "tag", None)
        documents += isinstance(event, DocumentStartEvent)
        depth += isinstance(event, MappingStartEvent | SequenceStartEvent)
        depth -= isinstance(event, MappingEndEvent | SequenceEndEvent)
        if documents > 1:
            raise ConfigError(f"{line}: a second document begins; keep one and remove the line ---")
        if depth > MAX_DEPTH:
            raise ConfigError(f"{line}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"{line}: anchors and aliases are not allowed; write the value out")
        if tag:
            raise ConfigError(f"{line}: tag {tag} is not allowed; write a plain value")
