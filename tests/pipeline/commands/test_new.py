"""`make new` writes a whole model or nothing, and refuses a name in one line."""

import shutil
from pathlib import Path

import pytest

from pipeline.commands import new
from pipeline.scaffolding import checkout, plan
from pipeline.storage.params_file import parse
from quatrain.registry import FRAMEWORKS
from tests.conftest import ROOT
from tests.pipeline.small_checkout import contents

CHANGED = (
    "src/quatrain/registry.py",
    "src/quatrain/params.py",
    "params.yaml",
    "dvc.yaml",
    "pyproject.toml",
    "data/.gitignore",
    "models/.gitignore",
    "tests/config_limits.txt",
    "tests/config_refusals.txt",
    "tests/contract_types.py",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a checkout with the files that name the models."""
    for name in CHANGED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_is_written_and_what_was_there_stays(
    project: Path, framework: str, capsys: pytest.CaptureFixture[str]
):
    before = contents(project)
    assert new.main(["rock_pool2", "--framework", framework]) == 0
    printed = capsys.readouterr().out
    after = contents(project)
    for path, data in before.items():
        assert set(data.splitlines()) - {b"source_modules = ["} <= set(
            after[path].replace(b'"quatrain.models.rock_pool2", ', b"").splitlines()
        ), path
    for path in after.keys() - before.keys() | set(CHANGED):
        assert path in printed
        assert b"sketch" not in after[path].lower(), path
        if path.endswith(".py"):
            compile(after[path], path, "exec")
    assert f'    "rock_pool2": "{framework}",'.encode() in after["src/quatrain/registry.py"]
    assert b"    rock_pool2: RockPool2Config\n" in after["src/quatrain/params.py"]
    assert "make repro MODELS=rock_pool2" in printed
    section = parse(project / "params.yaml")["rock_pool2"]
    assert list(section) == ["seeds", "env", "collect", "network", "train", "evaluate"]
    slots = parse(project / "dvc.yaml")["vars"][0]["models"]["rock_pool2"]
    assert slots["framework"] == f"src/quatrain/frameworks/{framework}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "'' is no name of a model; give at most 24 small letters, digits and underscores"),
        ("MyModel", "'MyModel' is no name of a model"),
        ("2d", "'2d' is no name of a model"),
        ("my-model", "'my-model' is no name of a model"),
        ("my__model", "'my__model' is no name of a model"),
        ("../x", "'../x' is no name of a model"),
        ("a" * 25, "is no name of a model"),
        ("lambda", "'lambda' is a keyword of Python; give another name"),
        ("match", "'match' is a keyword of Python; give another name"),
        ("allo", "there is a model 'allo' already; give another name"),
        ("seed", "'seed' is another key of params.yaml; give another name"),
        ("taken_folder", "src/quatrain/models/taken_folder is there already; remove it, or give"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_a_line_and_nothing_is_written(
    project: Path, name: str, reason: str, capsys: pytest.CaptureFixture[str]
):
    (project / "src/quatrain/models/taken_folder").mkdir(parents=True)
    before = contents(project)
    assert new.main([name]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("new: ")
    assert reason in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert contents(project) == before


@pytest.mark.parametrize(
    ("path", "old", "reason"),
    [
        ("src/quatrain/registry.py", "MODELS:", "has no dictionary MODELS"),
        ("src/quatrain/params.py", "Params(Section)", "has no class Params with a section of each"),
        ("dvc.yaml", "plots:\n  - allo", "has nothing like "),
        ("pyproject.toml", "a JAX model never", 'has no import contract "a JAX model never imp'),
    ],
)
def test_a_file_without_a_place_for_it_is_named_and_nothing_is_written(
    project: Path, path: str, old: str, reason: str, capsys: pytest.CaptureFixture[str]
):
    text = (project / path).read_text()
    assert text.count(old) == 1
    (project / path).write_text(text.replace(old, "_" + old))
    before = contents(project)
    assert new.main(["tide"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"new: {path}: {reason}")
    assert f"`git diff {path}` shows what was changed" in error
    assert contents(project) == before


def test_a_file_that_is_gone_is_named(project: Path, capsys: pytest.CaptureFixture[str]):
    (project / "pyproject.toml").unlink()
    before = contents(project)
    assert new.main(["tide"]) == 2
    assert "new: pyproject.toml: [Errno 2]" in capsys.readouterr().err
    assert contents(project) == before


def test_a_write_that_fails_takes_back_the_others(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before = contents(project)
    folders = {path for path in project.rglob("*") if path.is_dir()}
    total = len(plan.changes(project, "tide", "torch"))
    for count in range(0, total, 4):
        writes = iter(range(total))
        write = checkout.write_durably

        def fail(path: Path, data: bytes, writes=writes, count=count, write=write) -> None:
            if next(writes) == count:
                raise OSError(28, "No space left on device", str(path))
            write(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(checkout, "write_durably", fail)
            assert new.main(["tide", "--framework", "torch"]) == 5
        assert "No space left on device; nothing half-written was left" in capsys.readouterr().err
        assert contents(project) == before
        assert {path for path in project.rglob("*") if path.is_dir()} == folders


def test_outside_a_checkout_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert new.main(["tide"]) == 2
    assert "run it in a checkout of the project" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
