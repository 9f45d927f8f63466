"""`quatrain init` writes a project of one learner, or nothing; its stages and tests are its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.errors import CommandFailed
from pipeline.scaffolding import new_project
from pipeline.scaffolding.new_project import create, first_commit
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import IDENTITY, call, git

STAGES = ("collect", "train", "evaluate")
LISTS = ("params.yaml", "dvc.yaml", "Makefile", "pyproject.toml", "baselines", "inputs", "sweeps")
READ = """
import sys
from pathlib import Path
from pipeline.storage.params_file import read_params
for preset in sys.argv[1:]:
    assert read_params(Path.cwd(), preset).preset == preset
"""


@pytest.mark.parametrize("model", MODELS)
def test_a_project_has_one_learner_and_its_stages(model: str, tmp_path: Path):
    root = create(tmp_path, "My.Demo", model)
    assert [*tmp_path.iterdir()] == [root]
    others = re.compile(rf"\b({'|'.join(MODELS.keys() - {model})})\b")
    listed = [path for name in LISTS for path in (root / name, *(root / name).rglob("*"))]
    for path in filter(Path.is_file, listed):
        assert others.search(str(path.relative_to(root))) is None
        assert path.suffix not in (".yaml", "") or others.search(path.read_text()) is None, path
    assert [each.name for each in (root / "src/quatrain/models").iterdir() if each.is_dir()] == [
        model
    ]
    ours, theirs = (
        {str(path.relative_to(folder)) for path in folder.rglob("*.py")}
        for folder in (new_project.TEMPLATE.parent, root / "pipeline")
    )
    alone = {name for name in ours if new_project.LEFT_OUT.match(f"pipeline/{name}")}
    of_others = set() if model == "active_dynamics" else {"commands/identify.py"}
    assert ours - theirs == alone | of_others | {"new_project/test_project.py"}
    for name in ("test_project", "test_contract", "test_dvc_yaml", f"models/{model}/test_serve"):
        assert (root / "tests" / f"{name}.py").is_file()
    assert not (root / "development.mk").exists()
    assert 'EXPERIMENT = "My.Demo"' in (root / "pipeline/tracking/records.py").read_text()
    presets = ["default", *(path.stem for path in (root / "presets").iterdir())]
    call(root, sys.executable, "-c", READ, *presets)
    git(root, "init", "-q")
    stages = call(root, sys.executable, "-m", "dvc", "stage", "list", "--name-only").split()
    assert stages == [*(f"{verb}@{model}" for verb in STAGES), "report"]
    assert (root / "src/quatrain/defaults/params.yaml").samefile(root / "params.yaml")


def test_taking_a_model_out_leaves_the_values_and_comments_of_the_others(tmp_path: Path):
    root = create(tmp_path, "demo", "iqn")
    raw, whole = parse(root / "params.yaml"), parse(new_project.TEMPLATE.parents[1] / "params.yaml")
    assert raw == {key: value for key, value in whole.items() if key not in {*MODELS} - {"iqn"}}
    assert "# what grows; weight: its share" in (root / "params.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "'' is no name of a project; give at most 64 letters, digits, dots, hyphens and"),
        ("../demo", "'../demo' is no name of a project"),
        ("-demo", "'-demo' is no name of a project"),
        ("MLFlow", "'MLFlow' is a package that a project installs"),
        ("full", "full is there already; give another name, or an empty folder"),
        ("file", "file is there already"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_and_nothing_is_written(
    name: str, reason: str, tmp_path: Path
):
    (tmp_path / "full" / "of").mkdir(parents=True)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=re.escape(reason)):
        create(tmp_path, name, "allo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: Patch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_project, "adapt", fail)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path, "demo", "allo")
    assert [*tmp_path.iterdir()] == []


def test_a_project_is_committed_or_says_why_not(tmp_path: Path, monkeypatch: Patch):
    (tmp_path / "demo").mkdir()
    root = create(tmp_path, "demo", "allo")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", IDENTITY["user.name"])
        monkeypatch.setenv(f"GIT_{role}_EMAIL", IDENTITY["user.email"])
    assert first_commit(root) == ""
    assert git(root, "status", "--porcelain", "--ignored") == ""

    def fail(*_: object) -> bytes:
        raise CommandFailed("git cannot be run: No such file or directory")

    monkeypatch.setattr(new_project, "output", fail)
    assert "which is not committed (git cannot be run" in first_commit(root)


@pytest.mark.full
def test_the_tests_of_a_project_that_run_its_stages_pass(tmp_path: Path):
    root = create(tmp_path, "demo", "allo")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "tests/test_project.py",
        "tests/test_dvc_yaml.py",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
