"""The JSON schema of params.yaml -> its keys, and their rules in a form that a person reads."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quatrain.params import Params

Schema = dict[str, Any]
Path = tuple[str | int, ...]
HIDDEN = re.compile("InputFile$|.*(User|Jax)EnvConfig$")
ROOT_SCHEMA: Schema = Params.model_json_schema()


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
                base = raw if is_only else with_value(raw, path, allowed(option))
                yield from keys(base, option, path)
            elif is_section(items):
                yield from keys(with_value(raw, path, allowed(option)), items, (*path, 0))


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


def allowed(schema: Schema) -> Any:
    """Returns a value of the right type, which other keys may refuse."""
    (schema, *_) = options(schema)
    kind = schema["type"]
    if "const" in schema or "enum" in schema:
        return schema.get("enum", [schema.get("const")])[0]
    if kind in ("integer", "number"):
        above = schema.get("exclusiveMinimum", schema.get("minimum", 0))
        return above + int("exclusiveMinimum" in schema)
    if kind == "array":
        items = schema.get("prefixItems") or [schema["items"]] * schema.get("minItems", 1)
        return [allowed(item) for item in items]
    inner = schema.get("properties", {})
    text = "a" if re.search(schema.get("pattern", ""), "a") else "a:b"
    sample = {"object": {name: allowed(each) for name, each in inner.items()}, "string": text}
    return (sample | {"boolean": False, "null": None})[kind]
