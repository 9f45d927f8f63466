"""bytes of a journal's line -> what it records, or what is wrong with it."""

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

Line = dict[str, Any]

STATUSES = ("FINISHED", "FAILED", "KILLED")
# Milliseconds since 1970 that MLflow takes: it refuses a time before, and takes 0 for none; its
# pages end with the year 9999.
EARLIEST, LATEST = 1, 253_402_300_799_999
# Steps that a database holds.
LARGEST_STEP = 2**63 - 1

_NAME = re.compile(r"[\w.\- /:]{1,250}")
_RUN_KEY = re.compile(r"[\w.@-]{1,250}")


def decoded(raw: bytes) -> Any:
    """Returns the JSON of a line; None if it is none, as a kill or a power cut may leave it."""
    with suppress(ValueError, RecursionError):
        return json.loads(raw.decode())
    return None


def problem_of(line: Any) -> str | None:
    """Returns what is wrong with a line, in a few words; None if it can be delivered."""
    if not isinstance(line, dict):
        return "it is no object"
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        return "it has no known `kind`"
    for name, is_valid in FIELDS[kind].items():
        if name not in line and (kind, name) not in LATER:
            return f"its `{name}` is missing"
        if name in line and not is_valid(line[name]):
            return f"its `{name}` is wrong"
    return None


def in_time(line: Line) -> Line:
    """Returns the line with a time that MLflow takes, whatever the clock said."""
    if "time" not in line:
        return line
    return line | {"time": max(EARLIEST, min(LATEST, line["time"]))}


def is_name(name: Any) -> bool:
    """Returns whether MLflow takes it as the name of a metric, param or tag."""
    return (
        isinstance(name, str)
        and _NAME.fullmatch(name) is not None
        and posixpath.normpath(name) == name != "."
        and not name.startswith(("/", ".."))
    )


def is_run_key(text: Any) -> bool:
    return isinstance(text, str) and _RUN_KEY.fullmatch(text) is not None


def _is_text(value: Any) -> bool:
    """Returns whether a store can encode it, and a database keep it."""
    with suppress(UnicodeEncodeError):
        return isinstance(value, str) and b"\0" not in value.encode()
    return False


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST_STEP


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("nan", "inf", "-inf")
    with suppress(OverflowError):
        return type(value) in (int, float) and isinstance(float(value), float)
    return False


def _is_file(value: Any) -> bool:
    return _is_folder(value) and value != ""


def _is_folder(value: Any) -> bool:
    return _is_text(value) and not value.startswith("/") and ".." not in value.split("/")


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list)
        and len(row) == 3
        and is_name(row[0])
        and _is_integer(row[1])
        and _is_number(row[2])
        for row in value
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(is_name(k) and _is_text(v) for k, v in value.items())


def _are_inputs(value: Any) -> bool:
    fields = {"name", "digest", "context", "source"}
    return isinstance(value, list) and all(
        isinstance(entry, dict) and entry.keys() == fields and all(map(_is_text, entry.values()))
        for entry in value
    )


def _is_parent(value: Any) -> bool:
    if value is None:
        return True
    fields = {"run_key": is_run_key, "run_name": _is_text}
    later = {"tag": is_name, "ends_with_child": lambda flag: isinstance(flag, bool)}
    return (
        isinstance(value, dict)
        and fields.keys() <= value.keys() <= (fields | later).keys()
        and all((fields | later)[name](entry) for name, entry in value.items())
    )


Check = Callable[[Any], bool]
# Kind -> field -> whether a value of it can be delivered.
FIELDS: Mapping[str, dict[str, Check]] = {
    "begin": {
        "time": _is_integer,
        "run_key": is_run_key,
        "experiment": lambda name: _is_text(name) and name != "",
        "run_name": _is_text,
        "params": _are_texts,
        "tags": _are_texts,
        "inputs": _are_inputs,
        "parent": _is_parent,
    },
    "resume": {"time": _is_integer},
    "metrics": {"time": _is_integer, "rows": _are_rows},
    "artifact": {"file": _is_file, "path": _is_folder},
    "tags": {"tags": _are_texts},
    "model": {"time": _is_integer, "name": is_name, "file": _is_file, "card": _is_text},
    "card": {"name": is_name, "text": _is_text},
    "end": {"time": _is_integer, "status": lambda status: status in STATUSES},
}
# Fields that the lines of older versions lack.
LATER = {("begin", "parent"), ("model", "card")}
