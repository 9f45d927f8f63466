"""What stands in params.yaml, and what a stage would work with: equal, or refused in one line."""

import math
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

from pipeline.runtime.command import run_guarded
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from tests.campaign.promises import Outcome, broken, content_of, refused, see, unchanged
from tests.config_schema import ROOT_SCHEMA, Key, Path, inside, keys, options, outside, with_value
from tests.conftest import ROOT, committed

VARIANTS = ("built_in", "gymnasium", "pettingzoo")
HOSTED = {"allo": "HostedAlloConfig", "iqn": "HostedIqnConfig"} | {
    "actor_critic": "HostedActorCriticConfig"
}
MULTI = {"env": {"kind": "pettingzoo", "id": None, "import": "mpe2.simple_spread_v3:parallel_env"}}


@cache
def params_of(variant: str) -> dict[str, Any]:
    """The params.yaml of our environments, of the preset gymnasium, or with PettingZoo for iqn."""
    if variant == "built_in":
        return committed()
    raw = read_raw(ROOT, "gymnasium")
    return overlaid(raw, {"iqn": MULTI}) if variant == "pettingzoo" else raw


def keys_of(variant: str) -> Iterator[Key]:
    """Yields the keys of a variant: of a user's environment those of its models alone."""
    if variant == "built_in":
        yield from keys(committed())
        return
    for model in HOSTED if variant == "gymnasium" else ("iqn",):
        yield from keys(params_of(variant), ROOT_SCHEMA["$defs"][HOSTED[model]], (model,))


def checked(raw: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[Outcome, Any]:
    """What a command says of these values, and the params that it would work with."""
    results: list[BaseModel] = []

    def work() -> None:
        results.append(validate(raw, lambda name: read_input(ROOT, str(name))))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = see(lambda: run_guarded("check", work), capsys)
    return answer, results[0] if results else None


def refused_or_taken_as_written(
    raw: Mapping[str, Any], path: Path, capsys: pytest.CaptureFixture[str]
) -> bool:
    """Checks a value that nothing else is wrong with; returns whether it was refused."""
    answer, params = checked(raw, capsys)
    if params is None:
        refused(answer, 2, names(path))
        return True
    written = value_at(raw, path)
    read = value_at(params.model_dump(by_alias=True), path)
    if not same(written, read):
        broken("silent", f"{'.'.join(map(str, path))}: {written!r} is taken as {read!r}")
    return False


def names(path: Path) -> str:
    """The pattern of a line that names a key, or a section that holds it."""
    first, *rest = map(str, path)
    return rf"params\.yaml: (\(top level\)|{first}\b).*: \S|{first}" if rest else first


def value_at(section: Any, path: Path) -> Any:
    for key in path:
        section = section[key]
    return section


def same(written: Any, read: Any) -> bool:
    """Tells whether a value of YAML is the value of a config: 3.0 may be 3, a path its file."""
    if isinstance(written, Mapping):
        return (
            isinstance(read, Mapping)
            and written.keys() == read.keys()
            and all(same(value, read[key]) for key, value in written.items())
        )
    if isinstance(written, list | tuple):
        return (
            isinstance(read, list | tuple)
            and len(written) == len(read)
            and all(map(same, written, read))
        )
    if isinstance(read, Mapping):
        return isinstance(written, str) and read.get("name") == written
    if isinstance(written, bool) or isinstance(read, bool) or isinstance(written, str):
        return type(written) is type(read) and written == read
    if isinstance(written, int) and isinstance(read, float):
        return float(written) == read
    return written == read


HOSTILE: dict[str, Any] = {
    "text": "abc",
    "empty text": "",
    "quoted number": "1",
    "yes": "yes",
    "unicode": "größe \u202e 数",
    "path up": "../../etc/passwd",
    "long text": "a" * 5000,
    "null": None,
    "true": True,
    "nan": math.nan,
    "infinite": math.inf,
    "below": -(10**6),
    "a fraction": 0.123456789,
    "huge": 10**30,
    "beyond floats": 10**400,
    "empty list": [],
    "list of null": [None],
    "nested list": [[[1]]],
    "empty section": {},
    "section": {"a": 1},
    "list of sections": [{"a": None}],
}
"""Values that hardly any key takes."""


KINDS = ("text", "number", "structure", "outside", "at a bound")


def values_of(kind: str, key: Key) -> list[Any]:
    """The values of a kind that are written at a key."""
    if kind == "at a bound":
        return inside(key.schema)
    if kind == "outside":
        return [value for value in outside(key.schema) if value != "A" or not _takes_capitals(key)]
    types = {"text": str, "number": int | float, "structure": list | dict | None}
    return [value for value in HOSTILE.values() if isinstance(value, types[kind])]


def _takes_capitals(key: Key) -> bool:
    patterns = [option.get("pattern") for option in options(key.schema)]
    return any(re.search(pattern, "A") for pattern in patterns if pattern)


def changed(key: Key, value: Any) -> Any:
    return with_value(key.raw, key.path, value)


def written_nothing(
    folder: pathlib.Path, work: Callable[[], int | None], capsys: pytest.CaptureFixture[str]
) -> Outcome:
    before = content_of(folder)
    answer = see(work, capsys)
    unchanged(before, content_of(folder))
    return answer
