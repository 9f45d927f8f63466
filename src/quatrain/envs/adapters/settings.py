"""a section of the packaged params.yaml, changes of a caller -> a checked config."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from pydantic import ValidationError

from quatrain.errors import DataError
from quatrain.section import Section
from quatrain.storage.yaml_text import parse_mapping

SectionType = TypeVar("SectionType", bound=Section)


@cache
def default_params() -> Mapping[str, Any]:
    """Returns the defaults of params.yaml, not validated."""
    text = (files("quatrain") / "defaults" / "params.yaml").read_text("utf-8")
    return parse_mapping("params.yaml", text)


def configure(
    name: str, schema: type[SectionType], defaults: Mapping[str, Any], changes: Mapping[str, Any]
) -> SectionType:
    """Returns a section of the defaults with changes; a mapping changes the keys that it names.

    Raises:
        DataError: a change is not allowed; says which environment, key, value and why.
    """
    try:
        return schema.model_validate(_tuples(_overlaid(defaults, changes)))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
        raise DataError(f"{name}: {_describe(problems[0], schema)}") from None


def _describe(problem: Any, schema: type[Section]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown setting {path!r}; known: {', '.join(schema.model_fields)}"
    reason = problem["msg"].removeprefix("Value error, ")
    if isinstance(problem["input"], Mapping):
        return ": ".join(filter(None, [path, reason]))
    return f"{path} = {problem['input']!r}: {reason}"


def _overlaid(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for key, value in changes.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[key] = _overlaid(inner, value) if both else value  # type: ignore[arg-type]
    return merged


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value
