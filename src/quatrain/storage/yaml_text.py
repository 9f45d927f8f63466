"""text of a YAML file -> a mapping, or one line that says where it is wrong."""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import DocumentStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from quatrain.errors import ConfigError

MAX_DEPTH = 20
# What ruamel raises for odd texts; an interruption, which is raised anywhere, is none of these.
PARSER_FAULTS = (
    YAMLError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    ArithmeticError,
)
# Longest part of a text that a line of an error quotes.
LONGEST_QUOTE = 60
MERGE = "<<"
# Numbers that all versions and readers of YAML take for the same, but for 1e3, text in YAML 1.1.
NUMBER = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.I
)
LONGEST_NUMBER = 100
# Kinds of plain values that are no numbers.
OTHERS = ("str", "bool", "null")


def parse_mapping(name: str, text: str) -> dict[str, Any]:
    """Returns a YAML 1.2 mapping (as DVC reads it) with names as keys, and without what versions or
    readers of YAML take for different things: directives, tags, aliases, merge keys, duplicate
    keys, dates, numbers such as 010 or 1_000, a second document. `name` is that of the file.

    Raises:
        ConfigError: the text holds anything else.
    """
    try:
        raw = _content(name, text)
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(f"{error.context or ''} {error.problem or ''}".split())[:200]
        raise ConfigError(f"{name}{place}: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    except PARSER_FAULTS as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{name}: not YAML: {reason}") from None
    if not isinstance(raw, dict):
        content = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigError(
            f"{name}: {content}; expected `key: value` lines; `git checkout {name}` restores it"
        )
    return raw


def _content(name: str, text: str) -> Any:
    yaml = YAML(typ="safe", pure=True)
    start = next((each for each in yaml.parse(text) if isinstance(each, DocumentStartEvent)), None)
    if start is not None and (start.version not in (None, (1, 2)) or start.tags):
        line = start.start_mark.line + 1
        raise ConfigError(
            f"{name} line {line}: directives are not allowed: the file is YAML 1.2; remove them"
        )
    node = yaml.compose(text)
    if node is None:
        return None
    _check_node(name, node)
    return yaml.constructor.construct_document(node)


def _check_node(name: str, node: Node, depth: int = 1) -> None:
    line = f"{name} line {node.start_mark.line + 1}"
    if node.anchor:
        raise ConfigError(f"{line}: anchors and aliases are not allowed; write the value out")
    if depth > MAX_DEPTH:
        raise ConfigError(f"{line}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, ScalarNode) and node.style is None:
        _check_plain(line, node)
    elif _kind(node) not in ("str", "seq", "map"):
        raise ConfigError(
            f"{line}: tag {_quoted(str(node.tag))} is not allowed; write a plain value"
        )
    if isinstance(node, MappingNode):
        for key, value in node.value:
            _check_key(f"{name} line {key.start_mark.line + 1}", key)
            _check_node(name, value, depth + 1)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            _check_node(name, item, depth + 1)


def _kind(node: Node) -> str:
    return str(node.tag).rpartition(":")[-1]


def _check_key(line: str, key: Node) -> None:
    if not isinstance(key, ScalarNode):
        raise ConfigError(f"{line}: a key is a list or a section; write a name")
    if key.value == MERGE:
        raise ConfigError(f"{line}: merge key {MERGE} is not allowed; write the values out")
    _check_plain(line, key)
    if _kind(key) != "str":
        raise ConfigError(
            f"{line}: key {_quoted(key.value)!r} is of type {_kind(key)}; write a name"
        )


def _check_plain(line: str, node: ScalarNode) -> None:
    """Refuses a plain value that readers take for different numbers, or for a date."""
    kind = _kind(node)
    if kind in OTHERS:
        return
    value = _quoted(node.value)
    if kind in ("int", "float"):
        if len(node.value) > LONGEST_NUMBER:
            raise ConfigError(
                f"{line}: {value} has {len(node.value):,} digits; at most {LONGEST_NUMBER} are read"
            )
        if re.match(r"[-+.0]*[1-9]", node.value) and float(node.value) == 0:
            raise ConfigError(f"{line}: {value} is too small for a number; write 0")
        if NUMBER.fullmatch(node.value):
            return
        raise ConfigError(
            f"{line}: readers of YAML take {value} for different numbers; write decimal digits"
        )
    raise ConfigError(f"{line}: {value} is a YAML {kind}; quote it as text: '{value}'")


def _quoted(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."
