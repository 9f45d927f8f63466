"""`make new` writes a whole model or nothing, and refuses a name in one line; a model of each
framework runs, and keeps the contract, at once.
"""

import re
import shutil
from pathlib import Path

import pytest

from pipeline.dvc import workspace
from pipeline.scaffolding import new_model
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.registry import FRAMEWORKS, MODELS, Framework
from quatrain.storage import atomic_write
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import call, contents, git

CHANGED = ("dvc.yaml", *new_model.APPENDED)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a checkout with the files that get a section of each model."""
    for name in CHANGED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_is_written_and_what_was_there_stays(project: Path, framework: Framework):
    before = contents(project)
    for killed in ("tests/config_limits.txt", "src/quatrain/models/rock_pool2/card.md"):
        (project / killed).parent.mkdir(parents=True, exist_ok=True)
        (project / f"{killed}.0.partial").touch()
    printed = "\n".join(new_model.create(project, "rock_pool2", framework))
    after = contents(project)
    for path, data in before.items():
        lines = after[path].splitlines()
        assert [line for line in data.splitlines() if line not in lines] == [], path
    for path in after.keys() - before.keys() | set(CHANGED):
        assert path in printed
        assert b"sketch" not in after[path].lower(), path
        if path.endswith(".py"):
            compile(after[path], path, "exec")
    sections = parse(ROOT / "params.yaml")["allo"]
    assert list(parse(project / "params.yaml")["rock_pool2"]) == list(sections)
    slots = parse(project / "dvc.yaml")["vars"][0]["models"]
    assert slots["rock_pool2"].keys() == slots["allo"].keys()
    assert slots["rock_pool2"]["framework"] == framework
    for path in ("dvc.yaml", "params.yaml"):
        assert new_model.without(after[path].decode(), ["rock_pool2"]).encode() == before[path]
    declared = after["src/quatrain/models/rock_pool2/__init__.py"].decode()
    assert declared.endswith(f'\nFRAMEWORK = "{framework}"\nORDER = {len(MODELS) + 1}\n')


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "'' is no name of a model; give at most 24 small letters, digits and underscores"),
        ("MyModel", "'MyModel' is no name of a model"),
        ("../x", "'../x' is no name of a model"),
        ("a" * 25, "is no name of a model"),
        ("lambda", "'lambda' is a keyword of Python; give another name"),
        ("allo", "'allo' is a key of params.yaml already; give another name"),
        ("seed", "'seed' is a key of params.yaml already; give another name"),
        ("model_config", "'model_config' is a name that pydantic needs; give another name"),
        ("taken", "tests/models/taken/sizes.py is there already; remove it, or give another name"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_and_nothing_is_written(
    project: Path, name: str, reason: str
):
    (project / "tests/models/taken").mkdir(parents=True)
    (project / "tests/models/taken/sizes.py").write_text("")
    before = contents(project)
    with pytest.raises(ConfigError) as caught:
        new_model.create(project, name, "jax")
    assert reason in str(caught.value)
    assert contents(project) == before


@pytest.mark.parametrize("count", [0, 17])
def test_a_full_disk_leaves_the_checkout_as_it_was(project: Path, count: int, monkeypatch: Patch):
    before = contents(project)
    write = atomic_write._write
    written: list[Path] = []

    def fill(descriptor: int, path: Path, data: bytes) -> None:
        if len(written) == count:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        write(descriptor, path, data)

    monkeypatch.setattr(atomic_write, "_write", fill)
    with pytest.raises(OSError, match="No space left on device"):
        new_model.create(project, "tide", "torch")
    assert len(written) == count
    assert contents(project) == before


# A model of each framework in a copy of the project.

NAMES: dict[str, Framework] = {"rock_pool": "jax", "longest_name_of_a_model1": "torch"}
OF_ALL_MODELS = ("test_contract", "test_dvc_yaml", "test_params")


@pytest.mark.full
def test_new_models_keep_the_contract_and_their_first_baselines(tmp_path: Path):
    root = tmp_path / "project"
    for name in sorted(workspace.files_of_git(ROOT)):
        if (ROOT / name).is_file():
            workspace.copy_if_changed(ROOT / name, root / name)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "project")
    quatrain = ("python", "-m", "pipeline")
    for model, framework in NAMES.items():
        printed = call(root, *quatrain, "new", model, "--framework", framework)
        listed = re.findall(r"^  (?:new    |changed) +(\S+)$", printed, re.MULTILINE)
        status = git(root, "status", "--porcelain", "-uall").splitlines()
        assert {line[3:] for line in status} == set(listed)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", model)
    call(root, "ruff", "check", "src", "tests/models")
    call(root, "ruff", "format", "--check", "src", "tests/models")
    assert "0 broken" in call(root, "lint-imports")
    tests = [f"tests/{name}.py" for name in OF_ALL_MODELS]
    selected = " or ".join([*NAMES, "table"])
    call(root, "pytest", "-q", "-p", "no:cacheprovider", "-k", selected, *tests)
    first = call(root, *quatrain, "repro", *NAMES, code=4)
    promoted = call(root, *quatrain, "promote", *NAMES)
    again = call(root, *quatrain, "gate", *NAMES)
    for model in NAMES:
        remedy = f"`make promote MODELS={model}` stores them as the first baseline"
        assert (
            f"gate: {model}: trained and evaluated; nothing judges the scores yet: {remedy}"
            in first
        )
        assert f"baselines/{model}.json: preset default now holds" in promoted
    assert "gate: passed; 2 metrics of preset default hold their baselines" in again
    changed = {line[3:] for line in git(root, "status", "--porcelain", "-uall").splitlines()}
    results = [f"reports/{model}/{name}.json" for model in NAMES for name in ("scores", "metrics")]
    expected = {"dvc.lock", *results, *(f"baselines/{model}.json" for model in NAMES)}
    changed = {path for path in changed if not path.startswith("reports/cards/")}
    assert expected <= changed <= expected | {"reports/report.md"}
