"""The JSON schema of params.yaml -> its keys, their rules, and values just outside and inside."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quatrain.params import Params

Schema = dict[str, Any]
Path = tuple[str | int, ...]
HIDDEN = re.compile("InputFile$|.*UserEnvConfig$")
ROOT_SCHEMA: Schema = Params.model_json_schema()
TYPES = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
WRONG = {
    "integer": ["1", True, 1.5],
    "number": ["1", True, math.nan, math.inf],
    "string": [1],
    "boolean": ["no", 1],
    "array": [1, "a"],
    "object": [1],
    "null": [],
}
"""Values that another language, or YAML 1.1, would convert to the type."""


class Key(NamedTuple):
    """Names a value of params.yaml; `raw` is a params.yaml with the sections around it."""

    path: Path
    schema: Schema
    raw: dict[str, Any]

    def __str__(self) -> str:
        return ".".join(map(str, self.path))


def keys(raw: Any, section: Schema = ROOT_SCHEMA, above: Path = ()) -> Iterator[Key]:
    """Yields the keys of all sections, of optional and of alternative ones too."""
    for name, schema in section["properties"].items():
        path = (*above, name)
        alternatives = options(schema)
        is_only = len(alternatives) == 1
        if not (is_only and is_section(alternatives[0])):
            yield Key(path, schema, raw)
        for option in alternatives:
            items = resolved(option.get("items", {}))
            if is_section(option):
                base = raw if is_only else with_value(raw, path, inside(option)[0])
                yield from keys(base, option, path)
            elif is_section(items):
                yield from keys(with_value(raw, path, inside(option)[0]), items, (*path, 0))


def with_value(raw: Any, path: Path, value: Any) -> Any:
    """Returns a copy of `raw` with another value at a path."""
    key, *rest = path
    changed = list(raw) if isinstance(raw, list) else dict(raw)
    changed[key] = with_value(raw[key], tuple(rest), value) if rest else value
    return changed


def resolved(schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    return ROOT_SCHEMA["$defs"][schema["$ref"].rpartition("/")[-1]]


def options(schema: Schema) -> list[Schema]:
    """Returns the alternatives, but for the content of a file, whose path a user writes, and for
    the section of a model in a user's environment, which params.yaml does not hold.
    """
    union = map(resolved, schema.get("anyOf", schema.get("oneOf", [schema])))
    return [option for option in union if not HIDDEN.match(option.get("title", ""))]


def is_section(schema: Schema) -> bool:
    return "properties" in schema


def rule(schema: Schema) -> str:
    """Returns what is allowed, in a form that a person reads."""
    kinds = options(schema)
    if len(kinds) > 1:
        return " | ".join(map(rule, kinds))
    (schema,) = kinds
    kind = schema["type"]
    if "const" in schema or "enum" in schema:
        return " | ".join(schema.get("enum", [schema.get("const")]))
    if kind in ("integer", "number"):
        least, most = schema.get("minimum"), schema.get("maximum")
        above = f"({schema.get('exclusiveMinimum', -math.inf):.10g}"
        below = f"{schema.get('exclusiveMaximum', math.inf):.10g})"
        low = above if least is None else f"[{least:.10g}"
        high = below if most is None else f"{most:.10g}]"
        return f"{kind} {low}, {high}"
    if kind == "array":
        (item,) = {rule(item) for item in schema.get("prefixItems", [schema.get("items")])}
        return f"{schema.get('minItems', 0)}..{schema.get('maxItems', '')} of {item}"
    if kind == "string":
        length = f", at most {schema['maxLength']}" if "maxLength" in schema else ""
        return f"string {schema.get('pattern', '')}".strip() + length
    if schema.get("additionalProperties"):
        return f"name -> {rule(schema['additionalProperties'])}"
    return schema["title"] if kind == "object" else kind


def inside(schema: Schema) -> list[Any]:
    """Returns values at the bounds; each has the right type."""
    return [value for option in options(schema) for value in _inside(option)]


def _inside(schema: Schema) -> list[Any]:
    kind = schema["type"]
    if "const" in schema or "enum" in schema:
        return schema.get("enum", [schema.get("const")])
    if kind in ("integer", "number"):
        ends = [schema[key] for key in ("minimum", "maximum") if key in schema]
        for key, towards in (("exclusiveMinimum", math.inf), ("exclusiveMaximum", -math.inf)):
            ends += [_next(schema[key], towards, schema)] if key in schema else []
        return ends or [0.5]
    if kind == "array":
        items = _item_schemas(schema)
        least = [inside(item)[0] for item in items]
        lengths = {len(least), schema.get("maxItems", len(least))}
        by_item = [[value, *least[1:]] for value in inside(items[0])]
        return by_item + [(least * length)[:length] for length in sorted(lengths)]
    if kind == "string":
        return ["a" * schema.get("maxLength", 1)]
    if is_section(schema):
        return [{name: inside(inner)[0] for name, inner in schema["properties"].items()}]
    return {"object": [{}], "boolean": [False, True], "null": [None]}[kind]


def _next(bound: float, towards: float, schema: Schema) -> float:
    """Returns the next number above or below a bound."""
    if schema["type"] == "integer":
        return int(bound + math.copysign(1, towards))
    return math.nextafter(bound, towards)


def _item_schemas(schema: Schema) -> list[Schema]:
    return schema.get("prefixItems") or [schema["items"]] * schema.get("minItems", 1)


def outside(schema: Schema) -> list[Any]:
    """Returns values just beyond each bound, and values of other types."""
    kinds = options(schema)
    others = [{kind["type"] for kind in kinds if kind is not option} for option in kinds]
    values = [
        value
        for option, types in zip(kinds, others, strict=True)
        for value in _outside(option)
        if not TYPES[type(value)] & types
    ]
    return values if any(kind["type"] == "null" for kind in kinds) else [*values, None]


def _outside(schema: Schema) -> list[Any]:
    kind = schema["type"]
    wrong = list(WRONG[kind])
    if "const" in schema or "enum" in schema:
        return [*wrong, "no such choice"]
    if kind in ("integer", "number"):
        for key, towards in (("minimum", -math.inf), ("maximum", math.inf)):
            wrong += [_next(schema[key], towards, schema)] if key in schema else []
        return wrong + [schema[key] for key in schema if key.startswith("exclusive")]
    if kind == "array":
        first, *rest = _item_schemas(schema)
        lengths = [schema.get("minItems", 0) - 1, schema.get("maxItems", -2) + 1]
        wrong += [[inside(first)[0]] * length for length in lengths if length >= 0]
        return wrong + [[value, *(inside(item)[0] for item in rest)] for value in outside(first)]
    if kind == "string":
        wrong += [
            text for text in ("", "A", "a b") if not re.search(schema.get("pattern", ""), text)
        ]
        return wrong + ["a" * (schema[key] + 1) for key in schema if key == "maxLength"]
    inner = schema.get("additionalProperties")
    return wrong + [{"a": value} for value in (outside(inner) if inner else [])]
