"""params.yaml is refused in one line that names the key, before jax, torch or a written file."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.cli import main
from pipeline.storage.params_file import SCHEMA_FILE, read_input, read_params
from quatrain.errors import ConfigError
from quatrain.params import class_name
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.section import Section
from quatrain.validation import nested, overlaid, validate
from tests.config_keys import overlay_of
from tests.config_schema import ROOT_SCHEMA, Key, keys, options, rule, with_value
from tests.conftest import ROOT, committed
from tests.pipeline.fixture_types import Capture, Patch

GOOD = (ROOT / "params.yaml").read_text()
LIMITS = ROOT / "tests" / "config_limits.txt"
# Every key: its type and its limits.


def problem(raw: dict[str, Any]) -> str:
    """The line that a user reads; empty if the values can be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            validate(raw, lambda name: read_input(ROOT, str(name)))
        except ConfigError as error:
            return str(error)
    return ""


def all_keys() -> Iterator[Key]:
    """Yields the keys of all sections, and those of users' environments."""
    yield from keys(committed())
    raw = read_raw(ROOT, "gymnasium")
    for model in MODELS:
        schema = ROOT_SCHEMA["$defs"].get(f"{class_name(model)}UserEnvConfig")
        if schema:
            yield from keys(raw, schema, (model,))


def test_the_table_of_limits_is_that_of_the_schema():
    actual = [f"{key}: {rule(key.schema)}" for key in keys(committed())]
    assert actual == LIMITS.read_text().splitlines()


def values_of_other_types(schema: dict[str, Any]) -> list[Any]:
    kinds = {option["type"] for option in options(schema)}
    no_numbers = [math.nan, True] if kinds & {"integer", "number"} else []
    return [[{}], *no_numbers, *([] if "string" in kinds else ["1"])]


def test_a_value_of_another_type_is_refused_by_the_name_of_its_key():
    others = []
    for key in all_keys():
        # `kind` chooses a section, which its refusal names.
        path = key.path[:-1] if "const" in key.schema else key.path
        pattern = rf"params\.yaml: {re.escape('.'.join(map(str, path)))}(\.\w+)*( = |: ).+"
        for value in values_of_other_types(key.schema):
            line = problem(with_value(key.raw, key.path, value))
            if not re.fullmatch(pattern, line):
                others.append((str(key), value, line))
    assert others == []


class Typed(Section):
    whole: int = 1
    whole_or_none: int | None = None
    number: float = 1.0
    flag: bool = True
    text: str = "a"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("whole", ["1", True, 1.5, 1e300, math.inf]),
        ("number", ["1", True, math.nan, math.inf]),
        ("flag", ["no", 1]),
        ("text", [1, None]),
    ],
)
def test_a_section_converts_no_value_but_whole_floats(key: str, values: list[Any]):
    """YAML reads 2e4 as a float; YAML 1.1, or another language, takes "1", "no" or 1 for others."""
    for value in values:
        with pytest.raises(ValidationError):
            Typed.model_validate({key: value})
    section = Typed.model_validate({"whole": 2e4, "whole_or_none": 50.0})
    assert [type(section.whole), type(section.whole_or_none)] == [int, int]


def test_every_section_shows_all_its_keys_and_takes_no_others(tmp_path: Path, monkeypatch: Patch):
    monkeypatch.chdir(tmp_path)
    assert main(["params", "schema"]) == 0
    assert GOOD.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    schema = json.loads((tmp_path / SCHEMA_FILE).read_text())
    for section in (schema, *schema["$defs"].values()):
        assert section["required"] == list(section["properties"])
        assert section["additionalProperties"] is False


# Refusals beyond one key's limits.

REFUSAL = re.compile(r"((?:^\S.*\n)+) {4}(\S.*)\n", re.M)
REFUSAL_TABLE = (ROOT / "tests" / "config_refusals.txt").read_text()
REFUSALS = REFUSAL.findall(REFUSAL_TABLE)
"""Changes of params.yaml, each with a part of the line that refuses it."""


def test_every_line_of_the_table_of_refusals_is_read():
    assert REFUSAL.sub("", REFUSAL_TABLE) == ""


@pytest.mark.parametrize(
    ("changes", "message"), REFUSALS, ids=[message[:60] for _, message in REFUSALS]
)
def test_a_value_that_cannot_be_used_is_refused_in_one_line(changes: str, message: str):
    line = problem(overlaid(committed(), overlay_of(changes)))
    assert line.startswith("params.yaml: ")
    assert message in line
    assert "\n" not in line


TEXTS: list[tuple[str, str, str]] = [
    ("    batch_size: 256\n", "", r"allo.train.batch_size: is missing"),
    ("batch_size: 256", "batch_size: '256'", r"batch_size = '256': .*integer"),
    ("deterministic: true", "deterministic: no", r"deterministic = 'no': .*boolean"),
    ("learning_rate: 1e-3", "learning_rate: .nan", r"learning_rate = nan: .*finite number"),
    ("seed: 0\n", "seed: 0\nseed: 1\n", r"params.yaml line \d+, column \d+: .*duplicate key"),
]
"""Text of the file, other text in its place, and the refusal; others: tests/test_yaml_text.py."""

WHOLE: list[tuple[bytes | None, str]] = [
    (None, r"params.yaml: is not there"),
    (b"preset: \xff\xfe\n", r"params.yaml: byte 8 is not UTF-8"),
    (b"a: " + b"x" * 1_000_000, r"1,000,003 bytes; at most 200,000 are read"),
]
"""The whole file, and the refusal."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    (tmp_path / "params.yaml").write_text(GOOD)
    return tmp_path


def refused(project: Path, capsys: Capture, monkeypatch: Patch) -> str:
    """The one line that `params check` ends with, after exit 2 and no change to the folder."""
    before = sorted(project.rglob("*"))
    monkeypatch.chdir(project)
    assert main(["params", "check"]) == 2
    assert sorted(project.rglob("*")) == before
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.endswith("[exit 2]\n")
    return printed.err


def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    project: Path, capsys: Capture, monkeypatch: Patch
):
    assert all(old in GOOD for old, *_ in TEXTS)
    altered = [(GOOD.replace(old, new, 1).encode(), why) for old, new, why in TEXTS]
    for content, message in [*altered, *WHOLE]:
        (project / "params.yaml").unlink(missing_ok=True)
        if content is not None:
            (project / "params.yaml").write_bytes(content)
        assert re.search(message, refused(project, capsys, monkeypatch)), message
    (project / "params.yaml").unlink()
    (project / "params.yaml").mkdir()
    assert "params.yaml: is not a file" in refused(project, capsys, monkeypatch)


def test_a_stage_refuses_before_any_framework_is_imported_or_file_written(project: Path):
    (project / "params.yaml").write_text(GOOD.replace("batch_size: 256", "batch_size: 0"))
    code = (
        "import sys; from pipeline.runtime.stage import main as run;"
        "code = run('train', '', None, ['allo']);"
        "print(*{'jax', 'torch', 'mlflow', 'flax', 'matplotlib'} & {*sys.modules}); sys.exit(code)"
    )
    before = sorted(project.rglob("*"))
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert done.stdout.strip() == ""
    assert done.stderr.count("\n") == 1
    assert "train@allo: params.yaml: allo.train.batch_size = 0" in done.stderr
    assert sorted(project.rglob("*")) == before


# What is allowed.


def test_presets_are_valid_and_an_unknown_one_names_the_nearest():
    for preset in (path.stem for path in (ROOT / "presets").glob("*.yaml")):
        assert read_params(ROOT, preset).preset == preset
    message = r"unknown preset 'smok'; did you mean 'smoke'\?; known: default"
    with pytest.raises(ConfigError, match=message):
        read_params(ROOT, "smok")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset: mine\nseed: -1\n", "with presets/mine.yaml: params.yaml: seed = -1: "),
        ("preset: other\n", "presets/mine.yaml: preset is 'other'; write preset: mine"),
        ("preset: mine\nseed: 010\n", "mine.yaml line 2: readers of YAML take 010 for different"),
    ],
)
def test_a_preset_that_cannot_be_used_is_named(project: Path, text: str, message: str):
    (project / "presets").mkdir()
    (project / "presets" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_params(project, "mine")


def test_a_users_environment_keeps_what_the_model_has_with_both_kinds():
    old = {"seeds": 2, "env": {"height": 9}, "collect": {"turns": 9}, "train": {"batch_size": 9}}
    new = {"env": {"kind": "gymnasium"}, "train": {"turns": 7}}
    train = {"batch_size": 9, "turns": 7}
    assert overlaid({"iqn": old}, {"iqn": new}) == {"iqn": {"env": new["env"], "train": train}}
    assert overlaid({"iqn": {"train": None}}, {"iqn": {"env": new["env"]}})["iqn"]["train"] == {}
    only_colonies = {"train": {"compile": True, "epochs": 3}}
    kept = overlaid({"actor_critic": only_colonies}, {"actor_critic": {"env": new["env"]}})
    assert kept == {"actor_critic": {"env": new["env"], "train": {"epochs": 3}}}


def test_keys_with_dots_become_sections_in_any_order():
    """Another kind replaces its section, but not the keys that stand beside it."""
    changes = {"train.target.copy_every": 5, "train": {"steps": 7}, "train.target.kind": "hard"}
    train = {"steps": 7, "target": {"kind": "hard", "copy_every": 5}}
    assert nested(changes) == {"train": train}
