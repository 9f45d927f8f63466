"""What `pip install quatrain` gives: types, defaults, a command; and what a citation names."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import quatrain
from pipeline.dvc.workspace import files_of_git
from quatrain import registry
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEW_PROCESS = """
import json, sys
import quatrain, quatrain.params
from ruamel.yaml import YAML
from pathlib import Path
folder = Path(quatrain.__file__).parent
values = YAML(typ="safe").load(folder / "defaults" / "params.yaml")
assert quatrain.params.Params.model_validate(values).preset == "default"
print(folder, quatrain.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of the files that git lists: no earlier build lies beside them."""
    folder = tmp_path_factory.mktemp("project")
    for name in sorted(files_of_git(ROOT)):
        target = folder / "source" / name
        if (ROOT / name).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_symlink():
                target.symlink_to((ROOT / name).readlink())
            else:
                shutil.copyfile(ROOT / name, target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, folder / "source"], check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_package_is_found_from_the_folder_that_holds_the_clone(tmp_path: Path):
    """An empty folder of that name, as Python sees a clone, comes first on the path there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (tmp_path / "quatrain").mkdir()
    command = ["make", "-n", "-W", "pyproject.toml", f"BIN={tmp_path}/venv/bin", ".venv/.installed"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in recipe.splitlines() if line.endswith('quatrain.pth"'))
    subprocess.run(["bash", "-c", line], cwd=ROOT, check=True)
    process = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", "import quatrain; print(quatrain.__file__)"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == str(ROOT / "src" / "quatrain" / "__init__.py")


@pytest.mark.full
def test_the_wheel_holds_code_types_and_the_defaults_of_the_checkout_and_reads_them(
    wheel: zipfile.ZipFile, tmp_path: Path
):
    names = set(wheel.namelist())
    code = {
        str(path.relative_to(base))
        for base, package in ((ROOT / "src", "quatrain"), (ROOT, "pipeline"))
        for path in (base / package).rglob("*.py")
    }
    assert code <= names
    assert "quatrain/py.typed" in names
    for path in [ROOT / "params.yaml", *(ROOT / "presets").glob("*.yaml")]:
        inside = path.relative_to(ROOT)
        assert wheel.read(f"quatrain/defaults/{inside}") == path.read_bytes()
    information = f"quatrain-{quatrain.__version__}.dist-info"
    assert {Path(name).parts[0] for name in names} == {"quatrain", "pipeline", information}
    assert wheel.read("pipeline/reporting/page.css")
    wheel.extractall(tmp_path)
    command, environment = [sys.executable, "-c", NEW_PROCESS], {"PYTHONPATH": str(tmp_path)}
    said = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert said == f"{tmp_path / 'quatrain'} {quatrain.__version__}\n"


@pytest.mark.parametrize(
    ("name", "missing"), [("iqn", "jax"), ("allo", "flax"), ("actor_critic", "torch")]
)
def test_a_model_without_its_framework_says_which_extra_to_install(
    name: str, missing: str, monkeypatch: Patch
):
    def fail(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {absent!r}", name=absent)

    absent = missing
    monkeypatch.setattr(registry, "import_module", fail)
    extra = registry.MODELS[name]
    expected = (
        f"^{name} needs {missing}, which is not installed; pip install 'quatrain\\[{extra}\\]'$"
    )
    with pytest.raises(ModuleNotFoundError, match=expected):
        _ = registry.load(name).train
    absent = "another"
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'another'$"):
        _ = registry.load(name).train


def test_changelog_and_citation_are_of_this_version():
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert newest[1] == str(citation["version"]) == quatrain.__version__
    assert {each["url"] for each in citation["references"]} == set(PROJECT["urls"].values())


def test_every_python_is_named_everywhere():
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python ::" in each}
    workflow = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == {each["python"] for each in matrix["include"]} == named
    assert named == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert "Python 3.11, 3.12 or 3.13" in (ROOT / "README.md").read_text()
