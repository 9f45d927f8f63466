"""values of YAML, overlays -> validated sections, or one line that says what is wrong."""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from quatrain.envs.host.config import HostEnv, names_user_env
from quatrain.errors import ConfigError
from quatrain.params import JAX_ENV, OURS, USER_ENV, Params, schemas_of, tag_of
from quatrain.registry import MODELS
from quatrain.section import Content

Valid = TypeVar("Valid", bound=BaseModel)
# Keys of any environment that a user brings.
OF_USER_ENVS = {field.alias or name for name, field in HostEnv.model_fields.items()}


def overlaid(raw: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `raw` with the values of `overlay`, section by section.

    Where `kind` chooses one of several sections with different keys, another `kind` replaces the
    whole section. Another kind of environment, `env.kind` of a model, replaces all but what a model
    has with both: the keys of network, train and evaluate.
    """
    merged = dict(raw)
    for key, value in overlay.items():
        old = merged.get(key)
        if not isinstance(old, Mapping) or not isinstance(value, Mapping):
            merged[key] = value
        elif _brings_env(key, value) and not names_user_env(old):
            merged[key] = overlaid(_shared_with_user_env(key, old), value)
        elif value.get("kind") not in (None, old.get("kind")) and key in _keys_chosen_by_kind(
            Params
        ):
            merged[key] = value
        else:
            merged[key] = overlaid(old, value)
    return merged


def _brings_env(key: str, value: Mapping[str, Any]) -> bool:
    return key in MODELS and names_user_env(value) and USER_ENV in schemas_of(key)


def _shared_with_user_env(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the section of a model in an environment of a user keeps of these values."""
    schema = schemas_of(model)[USER_ENV]
    shared = {}
    for name in values.keys() & {"network", "train", "evaluate"}:
        (section,) = sections_of(schema, name).values()
        keys = values[name] if isinstance(values[name], Mapping) else {}
        shared[name] = {key: value for key, value in keys.items() if key in section.model_fields}
    return shared


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns sections of what dotted keys have: `{"train": {"steps": 5}}` of `train.steps`."""
    sections: dict[str, Any] = {}
    # Another kind replaces its section, so that it comes before the other keys of it.
    for key in sorted(values, key=lambda key: not key.endswith(".kind")):
        value = values[key]
        for part in reversed(key.split(".")):
            value = {part: value}
        sections = overlaid(sections, value)
    return sections


@cache
def _keys_chosen_by_kind(section: type[BaseModel]) -> frozenset[str]:
    keys = {key for key, field in section.model_fields.items() if field.discriminator}
    for key in section.model_fields:
        for inner in sections_of(section, key).values():
            keys |= _keys_chosen_by_kind(inner)
    return frozenset(keys)


def validate(raw: Mapping[str, Any], read_input: Callable[[object], Content]) -> Params:
    """Returns the Params of a mapping; `read_input` returns the content of a file that it names.

    Raises:
        ConfigError: says what is wrong first, and how many more errors there are.
    """
    return validate_section(Params, raw, read_input, "params.yaml")


def validate_section(
    section: type[Valid],
    raw: Mapping[str, Any],
    read_input: Callable[[object], Content] | None,
    name: str,
) -> Valid:
    """Returns a section of a mapping; `name` begins the line of an error. Without `read_input` no
    value may name a file.

    Raises:
        ConfigError: says what is wrong first, and how many more errors there are.
    """
    try:
        return section.model_validate(raw, context={"read_input": read_input})
    except ValidationError as error:
        raise ConfigError(describe(error, raw, section, name)) from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deep, or holds itself") from None
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{name}: {error.object[:80]!a}: has characters that are not UTF-8; remove them"
        ) from None


Keys = tuple[int | str, ...]


class Location(NamedTuple):
    keys: Keys
    value: Any


def describe(
    error: ValidationError, raw: Mapping[str, Any], schema: type[BaseModel], file: str
) -> str:
    """Returns one line about the first error of a file: which key, its value, the reason."""
    # An unknown key comes first: if it is misspelt, the right one is missing too.
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    location = _locate(first["loc"], raw)
    # Keys are in ASCII: a letter of another alphabet may look like one of theirs.
    path = ascii(".".join(map(str, location.keys)))[1:-1] or "(top level)"
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
    text = ascii(value) if problem["type"] == "literal_error" else repr(value)
    shown = "" if is_section else f" = {text}"[:120]
    section = _section_of(keys, schema, raw)
    fields = section.model_fields if section else {}
    field = fields.get(str(keys[-1])) if keys else None
    hint = f" ({field.description})" if field is not None and field.description else ""
    if problem["type"] == "extra_forbidden":
        others = [name for name in fields if name != keys[-1]]
        close = _elsewhere(keys, schema, raw, "." in file) or nearest(str(keys[-1]), others)
        if keys[1:-1] == ("env",) and keys[-1] in OF_USER_ENVS:
            close += (
                "; an environment of your own has it: name that, too, by id or import (and kind)"
            )
        return f": unknown key{close}; remove or correct it"
    if problem["type"] == "missing":
        if isinstance(problem["loc"][-1], int):
            return f"{shown}: has too few values{hint}"
        remedy = f"`git diff {file}` shows what was removed" if "." in file else "give it a value"
        if "." in file and keys[0] in MODELS and names_user_env(raw[str(keys[0])]):
            remedy = (
                "another kind of environment needs all keys of its section: copy them from "
                "presets/gymnasium.yaml"
            )
        return f": is missing{hint}; {remedy}"
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
        elif key in (raw.get("kind"), OURS, USER_ENV, JAX_ENV):
            # The name that `kind` chooses in a union, not a key.
            continue
        elif key == loc[-1]:
            raw = None
        else:
            break
        keys.append(key)
    return Location(tuple(keys), raw)


def sections_of(section: type[BaseModel], key: str) -> dict[str, type[BaseModel]]:
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
            options = sections_of(section, key)
            first = next(iter(options.values()), None)
            section = options.get(tag_of(raw), first) if isinstance(raw, Mapping) else first
    return section


# What libraries call the length of a training.
OF_LENGTH = ("steps", "timesteps", "total_steps", "total_timesteps", "transitions", "turns")


def _elsewhere(keys: Keys, schema: type[BaseModel], raw: Mapping[str, Any], is_file: bool) -> str:
    """Returns which key of its model an unknown key is, by its name or because it is what others
    call the length; nothing if it is none.
    """
    options = sections_of(schema, str(keys[0])) if keys[0] in MODELS else {}
    section = options.get(tag_of(raw[str(keys[0])], options))
    if section is None:
        return ""
    name = str(keys[-1])
    if name == "kind":
        return ""  # which many sections have
    if name in schema.model_fields:
        return f"; all models share {name}, which is an argument of its own, or a key above theirs"
    # Of another kind an inner section may have this very key.
    paths = [path for path in _paths(section) if keys[1:] != tuple(path.split("."))]
    same = [path for path in paths if f".{path}".endswith(f".{name}")]
    lengths = [f"train.{each}" for each in OF_LENGTH if f"train.{each}" in paths]
    if name in OF_LENGTH and (not same or {*same} & {*lengths}):
        same = lengths[:1]
    if not same:
        return ""
    *sections, last = same[0].split(".")
    call = f"{{{last!r}: ...}}"
    for outer in reversed(sections[1:]):
        call = f"{{{outer!r}: {call}}}"
    example = "" if is_file or not sections else f", as in {sections[0]}={call}"
    return f"; it is {' or '.join(same)}{example}"


def _paths(section: type[BaseModel]) -> list[str]:
    """Returns all keys of a section, with dots, of each kind that inner ones may have."""
    paths: dict[str, None] = {}
    for key, field in section.model_fields.items():
        name = field.alias or key
        paths[name] = None
        for inner in sections_of(section, key).values():
            paths |= dict.fromkeys(f"{name}.{path}" for path in _paths(inner))
    return list(paths)


def nearest(name: str, names: list[str]) -> str:
    """Returns a hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
