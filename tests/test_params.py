"""params.yaml is refused in one line that names the key, before jax, torch or a written file."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.storage.params_file import SCHEMA_FILE, read_input, read_params
from quatrain.errors import ConfigError
from quatrain.models.allo.config import AlloConfig
from quatrain.params import class_name
from quatrain.presets import parse, read_raw
from quatrain.registry import MODELS
from quatrain.section import tuples
from quatrain.validation import nested, overlaid, validate
from tests.config_keys import overlay_of
from tests.config_schema import ROOT_SCHEMA, Key, inside, keys, outside, rule, with_value
from tests.conftest import ROOT, committed, params_with

GOOD = (ROOT / "params.yaml").read_text()
LIMITS = ROOT / "tests" / "config_limits.txt"
# Every key: its type and its limits.


def problem(raw: dict[str, Any], path: tuple[str | int, ...] = ()) -> str:
    """The line that a user reads; empty if the values can be used, that at `path` as written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            params = validate(raw, lambda name: read_input(ROOT, str(name)))
        except ConfigError as error:
            return str(error)
    written, read = raw, params.model_dump(by_alias=True)
    for key in path:
        written, read = written[key], read[key]
    assert tuples(written) == read, path
    return ""


def keys_by_section() -> dict[str, list[Key]]:
    """Returns the keys of each model, those of users' environments, and those that all share."""
    sections: dict[str, list[Key]] = {}
    for key in keys(committed()):
        sections.setdefault(key.path[0] if key.path[0] in MODELS else "shared", []).append(key)
    raw = read_raw(ROOT, "gymnasium")
    for model in MODELS:
        schema = ROOT_SCHEMA["$defs"].get(f"{class_name(model)}UserEnvConfig")
        if schema:
            sections[f"{model} in a user's environment"] = [*keys(raw, schema, (model,))]
    return sections


KEYS = keys_by_section()


def test_the_table_of_limits_is_that_of_the_schema():
    actual = [f"{key}: {rule(key.schema)}" for key in keys(committed())]
    assert actual == LIMITS.read_text().splitlines()


@pytest.mark.parametrize("section", KEYS)
def test_values_at_a_keys_limits_are_taken_as_written_and_just_outside_refused(section: str):
    """Other keys, or a check of its meaning, may refuse a limit: not its type or bounds."""
    accepted, wrongly_refused = [], []
    for key in KEYS[section]:
        # `kind` chooses a section, which its refusal names.
        path = key.path[:-1] if "const" in key.schema else key.path
        pattern = rf"params\.yaml: {re.escape('.'.join(map(str, path)))}(\.\w+)*( = |: ).+"
        for value in outside(key.schema):
            line = problem(with_value(key.raw, key.path, value), key.path)
            if not re.fullmatch(pattern, line):
                accepted.append((str(key), str(value)[:80], line))
        for value in inside(key.schema):
            line = problem(with_value(key.raw, key.path, value), key.path)
            if re.match(rf"params\.yaml: {re.escape(str(key))}\b.* = .*: \w+ should ", line):
                wrongly_refused.append((str(key), str(value)[:80], line))
    assert (accepted, wrongly_refused) == ([], [])


def test_every_section_shows_all_its_keys_and_takes_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


@pytest.mark.parametrize(
    ("path", "written", "read"),
    [("allo.train.steps", 2e4, 20_000), ("allo.env.max_episode_steps", 50.0, 50), ("seed", 3.0, 3)],
)
def test_whole_floats_are_whole_numbers(path: str, written: float, read: int):
    """YAML reads 2e4 as a float."""
    *sections, key = path.split(".")
    raw = with_value(committed(), (*sections, key), written)
    section: Any = validate(raw, lambda name: read_input(ROOT, str(name)))
    for name in sections:
        section = getattr(section, name)
    value = getattr(section, key)
    assert (value, type(value)) == (read, int)
    for other in (written + 0.5, 1e300, float("inf")):
        assert problem(with_value(raw, (*sections, key), other)).startswith(
            f"params.yaml: {path} = {other!r}: Input should be a valid integer"
        )


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


def refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
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
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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


def test_an_overlay_replaces_the_keys_that_it_names_and_no_others():
    raw = parse(ROOT / "params.yaml")
    assert (
        raw["allo"]["train"]["learning_rate"] == 1e-3
    )  # in YAML 1.1, which DVC does not read, text
    merged = overlaid(raw, {"allo": {"train": {"steps": 7}}})
    assert merged["allo"]["train"].pop("steps") == 7
    assert raw["allo"]["train"].pop("steps") == 20000
    assert merged == raw


def test_a_users_environment_keeps_what_the_model_has_with_both_kinds():
    old = {"seeds": 2, "env": {"height": 9}, "collect": {"turns": 9}, "train": {"batch_size": 9}}
    new = {"env": {"kind": "gymnasium"}, "train": {"turns": 7}}
    train = {"batch_size": 9, "turns": 7}
    assert overlaid({"iqn": old}, {"iqn": new}) == {"iqn": {"env": new["env"], "train": train}}
    assert overlaid({"iqn": {"train": None}}, {"iqn": {"env": new["env"]}})["iqn"]["train"] == {}
    only_colonies = {"train": {"compile": True, "epochs": 3}}
    kept = overlaid({"actor_critic": only_colonies}, {"actor_critic": {"env": new["env"]}})
    assert kept == {"actor_critic": {"env": new["env"], "train": {"epochs": 3}}}


@pytest.mark.parametrize(
    ("model", "section"), [("active_dynamics", {}), ("allo", {"collect": {"env": {"kind": "x"}}})]
)
def test_a_kind_where_none_can_be_is_left_to_the_validation(model: str, section: dict[str, Any]):
    changes = section or {"env": {"kind": "gymnasium"}}
    with pytest.raises(ConfigError, match="unknown key"):
        params_with({model: changes})


def test_another_kind_takes_the_place_of_a_section_only_where_it_has_other_keys():
    raw = committed()
    hard, duffing = {"kind": "hard", "copy_every": 100}, {"kind": "duffing"}
    merged = overlaid(
        raw, {"iqn": {"train": {"target": hard}}, "active_dynamics": {"env": {"field": duffing}}}
    )
    assert merged["iqn"]["train"]["target"] == hard
    field = raw["active_dynamics"]["env"]["field"]
    assert merged["active_dynamics"]["env"]["field"] == field | duffing


def test_keys_with_dots_become_sections_in_any_order():
    """Another kind replaces its section, but not the keys that stand beside it."""
    changes = {"train.target.copy_every": 5, "train": {"steps": 7}, "train.target.kind": "hard"}
    train = {"steps": 7, "target": {"kind": "hard", "copy_every": 5}}
    assert nested(changes) == {"train": train}


def test_a_map_file_stands_with_its_content_in_the_config(project: Path):
    (project / "inputs" / "allo" / "mine.txt").write_text("......\n......\n..S...\n")
    raw = overlaid(committed(), {"allo": {"env": {"layout": "inputs/allo/mine.txt"}}})
    config = validate(raw, lambda name: read_input(project, str(name))).allo
    assert config.env.map.start == (2, 2)
    again = AlloConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert hash(again) == hash(config)
