"""params.yaml (and an overlay of presets/) -> Params, or one line within two seconds that says what is wrong."""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, DocumentStartEvent, MappingStartEvent, SequenceStartEvent

from pipeline.runtime.errors import ConfigError
from pipeline.storage.input_files import read_content, read_text
from quatrain.params import Params
from quatrain.section import Content

MAX_DEPTH = 20


def read_params(root: Path, preset: str | None = None) -> Params:
    """The checked content of `root/params.yaml`, overlaid by `root/presets/PRESET.yaml` if one is named.

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
    """The unchecked content of params.yaml with an overlay's sections in place of its own."""
    raw = parse(root / "params.yaml")
    if preset in (None, "default"):
        return raw
    known = sorted(path.stem for path in (root / "presets").glob("*.yaml"))
    if preset not in known:
        raise ConfigError(
            f"unknown preset {preset!r}{_nearest(str(preset), known)}; known: default, {', '.join(known)}"
        )
    overlay = parse(root / "presets" / f"{preset}.yaml")
    if overlay.get("preset") != preset:
        raise ConfigError(
            f"presets/{preset}.yaml: preset is {overlay.get('preset')!r}; write preset: {preset}"
        )
    return overlaid(raw, overlay)


def overlaid(raw: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with the keys of `overlay` in place of its own, section by section.

    Of a section that is one of several, each with keys of its own, another `kind` takes the place of the whole.
    """
    merged = dict(raw)
    for key, value in overlay.items():
        old = merged.get(key)
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and not _is_another(key, old, value)
        ):
            merged[key] = overlaid(old, value)
        else:
            merged[key] = value
    return merged


def _is_another(key: str, old: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return value.get("kind") not in (None, old.get("kind")) and key in _chosen_by_kind(Params)


@cache
def _chosen_by_kind(section: type[BaseModel]) -> frozenset[str]:
    """Keys in a section, and below, that name one of several sections."""
    inner = [one for key in section.model_fields if (one := _section(section, key))]
    found = frozenset(key for key, field in section.model_fields.items() if field.discriminator)
    return found.union(*map(_chosen_by_kind, inner))


def parse(path: Path) -> dict[str, Any]:
    """A YAML 1.2 mapping (as DVC reads it) without tags, aliases, duplicate keys or a second document."""
    text = read_text(path)
    yaml = YAML(typ="safe", pure=True)
    try:
        _refuse_tricks(path.name, yaml.parse(text))
        raw = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(str(error.problem or error.context).split())
        raise ConfigError(f"{path.name}{where}: {reason}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(raw, dict):
        found = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigError(
            f"{path.name}: {found}; expected `key: value` lines; `git checkout {path.name}` restores it"
        )
    return raw


def _refuse_tricks(name: str, events: Any) -> None:
    depth = documents = 0
    for event in events:
        where = f"{name} line {event.start_mark.line + 1}"
        documents += isinstance(event, DocumentStartEvent)
        depth += isinstance(event, MappingStartEvent | SequenceStartEvent)
        depth -= type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent")
        if documents > 1:
            raise ConfigError(
                f"{where}: a second document begins; keep one and remove the line ---"
            )
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"{where}: anchors and aliases are not allowed; write the value out")
        if tag := getattr(event, "tag", None):
            raise ConfigError(f"{where}: tag {tag} is not allowed; write a plain value")


def read_input(root: Path, name: str) -> Content:
    """What a file holds that a config names by a path under inputs/."""
    path = root / name
    folder = (root / "inputs").resolve()
    if not path.resolve().is_relative_to(folder):
        raise ValueError(f"{name} is outside inputs/; copy the file there and name it by that path")
    if not path.is_file():
        near = [str(p.relative_to(root)) for p in sorted(folder.rglob("*")) if p.is_file()]
        raise ValueError(f"{name} is not there{_nearest(name, near)}")
    try:
        return read_content(path)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def validate(raw: Mapping[str, Any], read_input: Callable[[object], Content]) -> Params:
    """Params of a mapping; `read_input` gives the content of a file that it names.

    Raises:
        ConfigError: the first thing that is wrong, and how many more there are.
    """
    try:
        return Params.model_validate(_tuples(raw), context={"read_input": read_input})
    except ValidationError as error:
        raise ConfigError(_one_line(error, raw)) from None


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value


def _one_line(error: ValidationError, raw: Mapping[str, Any]) -> str:
    # An unknown key comes first: where it is a misspelling, the right one is missing too.
    problems = sorted(
        error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden"
    )
    first = problems[0]
    keys, value = _locate(first["loc"], raw)
    path = ".".join(map(str, keys)) or "(top level)"
    reason = first["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(value, Mapping) else f" = {value!r}"[:120]
    field = _field(keys)
    if first["type"] == "extra_forbidden":
        shown, reason = (
            "",
            f"unknown key{_nearest(str(keys[-1]), _siblings(keys))}; remove or correct it",
        )
    elif first["type"] == "missing" and isinstance(first["loc"][-1], int):
        reason = f"has too few values{_hint(field)}"
    elif first["type"] == "missing":
        shown, reason = (
            "",
            f"is missing{_hint(field)}; `git diff params.yaml` shows what was removed",
        )
    elif not isinstance(value, Mapping):
        reason += _hint(field)
    others = {_locate(one["loc"], raw)[0] for one in problems} - {keys}
    more = f" (and {len(others)} more to mend)" if others else ""
    return " ".join(f"params.yaml: {path}{shown}: {reason}{more}".split())


def _locate(loc: tuple[int | str, ...], raw: Any) -> tuple[tuple[int | str, ...], Any]:
    """The part of pydantic's location that names keys of the file (unions add names of types), and the value there."""
    keys: list[int | str] = []
    for key in loc:
        named = isinstance(raw, Mapping) and key in raw
        if named or (isinstance(raw, list) and isinstance(key, int) and key < len(raw)):
            raw = raw[key]
        elif isinstance(raw, Mapping) and raw.get("kind") == key:
            continue  # of a union that `kind` chooses from
        elif isinstance(raw, Mapping) and key == loc[-1]:
            raw = None
        else:
            break
        keys.append(key)
    return tuple(keys), raw


def _siblings(keys: tuple[int | str, ...]) -> list[str]:
    section: type[BaseModel] = Params
    for key in keys[:-1]:
        section = _section(section, str(key)) or section
    return list(section.model_fields)


def _section(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The model class behind a key, seen through `X | None`."""
    field = section.model_fields.get(key)
    candidates = (
        [] if field is None else [field.annotation, *getattr(field.annotation, "__args__", ())]
    )
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _field(keys: tuple[int | str, ...]) -> Any:
    section: type[BaseModel] | None = Params
    for key in keys[:-1]:
        if not isinstance(key, int):  # the place in a list of sections
            section = _section(section, str(key)) if section else None
    return section.model_fields.get(str(keys[-1])) if section and keys else None


def _hint(field: Any) -> str:
    return f" ({field.description})" if field is not None and field.description else ""


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
