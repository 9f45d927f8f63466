"""params.yaml (and an overlay of presets/) -> Params, or one line that says what is wrong."""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails
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

from pipeline.runtime.errors import ConfigError
from pipeline.storage.input_files import read_content, read_text
from quatrain.envs.host.config import variant
from quatrain.params import Params
from quatrain.section import Content

MAX_DEPTH = 20


def read_params(root: Path, preset: str | None = None) -> Params:
    """Returns the validated `root/params.yaml` with the values of `root/presets/PRESET.yaml`, if
    one is named.

    Raises:
        ConfigError: the file or a value in it cannot be used.
    """
    raw = read_raw(root, preset)
    try:
        return validate(raw, lambda name: read_input(root, str(name)))
    except ConfigError as error:
        if preset in (None, "default"):
            raise
        raise ConfigError(f"with presets/{preset}.yaml: {error}") from None


def read_raw(root: Path, preset: str | None = None) -> dict[str, Any]:
    """Returns params.yaml with the values of a preset, not validated.

    Raises:
        ConfigError: a file is not YAML, or there is no such preset.
    """
    raw = parse(root / "params.yaml")
    if preset in (None, "default"):
        return raw
    presets = sorted(path.stem for path in (root / "presets").glob("*.yaml"))
    if preset not in presets:
        hint = nearest(str(preset), presets)
        raise ConfigError(f"unknown preset {preset!r}{hint}; known: default, {', '.join(presets)}")
    overlay = parse(root / "presets" / f"{preset}.yaml")
    name = overlay.get("preset")
    if name != preset:
        raise ConfigError(f"presets/{preset}.yaml: preset is {name!r}; write preset: {preset}")
    return overlaid(raw, overlay)


def overlaid(raw: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `raw` with the values of `overlay`, section by section.

    Where `kind` chooses one of several sections with different keys, another `kind` replaces the
    whole section; `env.kind` that of the model.
    """
    merged = dict(raw)
    for key, value in overlay.items():
        old = merged.get(key)
        if not isinstance(old, Mapping) or not isinstance(value, Mapping):
            merged[key] = value
            continue
        merged[key] = value if _is_replaced(key, old, value) else overlaid(old, value)
    return merged


def _is_replaced(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if isinstance(new.get("env"), Mapping) and variant(new) != variant(old):
        return variant(new) == "hosted"
    return new.get("kind") not in (None, old.get("kind")) and key in _keys_chosen_by_kind(Params)


@cache
def _keys_chosen_by_kind(section: type[BaseModel]) -> frozenset[str]:
    keys = {key for key, field in section.model_fields.items() if field.discriminator}
    for key in section.model_fields:
        for inner in _sections(section, key).values():
            keys |= _keys_chosen_by_kind(inner)
    return frozenset(keys)


def parse(path: Path) -> dict[str, Any]:
    """Returns a YAML 1.2 mapping (as DVC reads it) without tags, aliases, duplicate keys or a
    second document.

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    text = read_text(path)
    yaml = YAML(typ="safe", pure=True)
    try:
        _check_events(path.name, yaml.parse(text))
        raw = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(str(error.problem or error.context).split())
        raise ConfigError(f"{path.name}{place}: {reason}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path.name}: not YAML: {reason}") from None
    if not isinstance(raw, dict):
        content = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigError(
            f"{path.name}: {content}; "
            f"expected `key: value` lines; `git checkout {path.name}` restores it"
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


def read_input(root: Path, name: str) -> Content:
    """Returns the content of a file that a config names by a path under inputs/.

    Raises:
        ValueError: the file is outside inputs/, missing or damaged.
    """
    path = root / name
    folder = (root / "inputs").resolve()
    if not path.resolve().is_relative_to(folder):
        raise ValueError(f"{name} is outside inputs/; copy the file there and name it by that path")
    if not path.is_file():
        names = [
            str(path.relative_to(root)) for path in sorted(folder.rglob("*")) if path.is_file()
        ]
        raise ValueError(f"{name} is not there{nearest(name, names)}")
    try:
        return read_content(path)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def validate(raw: Mapping[str, Any], read_input: Callable[[object], Content]) -> Params:
    """Returns the Params of a mapping; `read_input` returns the content of a file that it names.

    Raises:
        ConfigError: says what is wrong first, and how many more errors there are.
    """
    try:
        return Params.model_validate(tuples(raw), context={"read_input": read_input})
    except ValidationError as error:
        raise ConfigError(describe(error, raw)) from None


def tuples(value: Any) -> Any:
    """Returns a value of YAML with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(tuples(inner) for inner in value) if isinstance(value, list) else value


Keys = tuple[int | str, ...]


class Location(NamedTuple):
    keys: Keys
    value: Any


def describe(
    error: ValidationError,
    raw: Mapping[str, Any],
    schema: type[BaseModel] = Params,
    file: str = "params.yaml",
) -> str:
    """Returns one line about the first error of a file: which key, its value, the reason."""
    # An unknown key comes first: if it is misspelt, the right one is missing too.
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    location = _locate(first["loc"], raw)
    path = ".".join(map(str, location.keys)) or "(top level)"
    others = {_locate(problem["loc"], raw).keys for problem in problems} - {location.keys}
    more = f" (and {len(others)} more to mend)" if others else ""
    reason = _reason(first, location, schema, file, raw)
    return " ".join(f"{file}: {path}{reason}{more}".split())


def _reason(
    problem: ErrorDetails,
    location: Location,
    schema: type[BaseModel],
    file: str,
    raw: Mapping[str, Any],
) -> str:
    keys, value = location
    is_section = isinstance(value, Mapping)
    shown = "" if is_section else f" = {value!r}"[:120]
    section = _section_of(keys, schema, raw)
    fields = section.model_fields if section else {}
    field = fields.get(str(keys[-1])) if keys else None
    hint = f" ({field.description})" if field is not None and field.description else ""
    if problem["type"] == "extra_forbidden":
        others = [name for name in fields if name != keys[-1]]
        return f": unknown key{nearest(str(keys[-1]), others)}; remove or correct it"
    if problem["type"] == "missing":
        if isinstance(problem["loc"][-1], int):
            return f"{shown}: has too few values{hint}"
        return f": is missing{hint}; `git diff {file}` shows what was removed"
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{shown}: {reason}{'' if is_section else hint}"


def _locate(loc: Keys, raw: Any) -> Location:
    """Returns the part of pydantic's location that names keys of the file; unions add names of
    types to it.
    """
    keys: list[int | str] = []
    for key in loc:
        is_item = isinstance(raw, list) and isinstance(key, int) and key < len(raw)
        if is_item or (isinstance(raw, Mapping) and key in raw):
            raw = raw[key]
        elif not isinstance(raw, Mapping):
            break
        elif key in (raw.get("kind"), "built_in", "hosted"):
            # The name that `kind` chooses in a union, not a key.
            continue
        elif key == loc[-1]:
            raw = None
        else:
            break
        keys.append(key)
    return Location(tuple(keys), raw)


def _sections(section: type[BaseModel], key: str) -> dict[str, type[BaseModel]]:
    """Returns the schemas that a key may have: by the tag of each in a union, else by its name."""
    field = section.model_fields.get(key)
    if field is None:
        return {}
    schemas: dict[str, type[BaseModel]] = {}
    for candidate in (field.annotation, *get_args(field.annotation)):
        tags = [part.tag for part in get_args(candidate)[1:] if isinstance(part, Tag)]
        schema = get_args(candidate)[0] if tags else candidate
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            schemas[tags[0] if tags else schema.__name__] = schema
    return schemas


def _section_of(keys: Keys, schema: type[BaseModel], raw: Any) -> type[BaseModel] | None:
    section: type[BaseModel] | None = schema
    for key in keys[:-1]:
        # A number is the place in a list of sections.
        raw = raw[key]
        if section and not isinstance(key, int):
            options = _sections(section, key)
            first = next(iter(options.values()), None)
            section = options.get(variant(raw), first) if isinstance(raw, Mapping) else first
    return section


def nearest(name: str, names: list[str]) -> str:
    """Returns a hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
