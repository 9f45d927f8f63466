"""A model of `make new`, of each framework, passes all tests of the others and runs at once."""

from pathlib import Path

import pytest

from pipeline.dvc import workspace
from tests.conftest import ROOT
from tests.pipeline.small_checkout import call, git

pytestmark = pytest.mark.full
NAMES = {"jax": "rock_pool", "torch": "longest_name_of_a_model1"}
OF_ALL_MODELS = (
    "test_contract",
    "test_params",
    "pipeline/commands/test_gate",
    "pipeline/reporting/test_report",
)
"""Run for every registered model."""


def copy_of_the_project(root: Path) -> None:
    """Copies and commits the files that git lists."""
    for name in sorted(workspace.files_of_git(ROOT)):
        if (ROOT / name).is_file():
            workspace.copy_if_changed(ROOT / name, root / name)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "project")


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


@pytest.fixture(scope="module")
def grown(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of the project with the model."""
    root = tmp_path_factory.mktemp("grown") / "project"
    copy_of_the_project(root)
    framework = next(key for key, name in NAMES.items() if name == model)
    command = ("python", "-m", "pipeline.commands.new", model, "--framework", framework)
    printed = call(root, *command)
    listed = {line.split()[1] for line in printed.splitlines() if line.startswith("  new  ")}
    listed |= {line.split()[1] for line in printed.splitlines() if line.startswith("  changed")}
    status = git(root, "status", "--porcelain", "-uall").splitlines()
    assert {line[3:] for line in status} == listed
    assert f"there is a model '{model}' already" in call(root, *command, code=2)
    assert git(root, "status", "--porcelain", "-uall").splitlines() == status
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", model)
    return root


def test_its_style_imports_and_stages_are_those_of_the_others(grown: Path, model: str):
    files = [f"src/quatrain/models/{model}", f"tests/models/{model}", "tests/contract_types.py"]
    call(grown, "ruff", "check", *files)
    call(grown, "ruff", "format", "--check", *files, "src/quatrain/params.py")
    assert "0 broken" in call(grown, "lint-imports")
    tests = ["tests/test_dvc_yaml.py", "tests/test_language.py"]
    call(grown, "pytest", "-q", "-p", "no:cacheprovider", *tests)


@pytest.mark.slow
def test_what_holds_for_every_model_holds_for_it(grown: Path, model: str):
    files = [f"tests/{name}.py" for name in OF_ALL_MODELS]
    selected = ["-p", "no:cacheprovider", "-k", f"{model} or gate or report or table or refused"]
    call(grown, "pytest", "-q", *selected, *files)


def test_it_is_trained_refused_without_a_baseline_promoted_and_then_holds_it(
    grown: Path, model: str
):
    first = call(grown, "python", "-m", "pipeline.commands.repro", model, code=4)
    assert f"gate: {model}: no baseline: preset 'default' has no baseline yet [exit 4]" in first
    remedy = f"no baseline yet: `make promote MODELS={model}` stores these scores as the first"
    assert f"gate: {model}: {remedy}" in first
    promoted = call(grown, "python", "-m", "pipeline.commands.promote", model)
    assert f"baselines/{model}.json: preset default now holds" in promoted
    again = call(grown, "python", "-m", "pipeline.commands.repro", model)
    assert "Running stage" not in again
    assert "gate: passed; 1 metrics hold their baselines" in again
    changed = {line[3:] for line in git(grown, "status", "--porcelain", "-uall").splitlines()}
    written = {f"reports/{model}/{name}.json" for name in ("scores", "metrics")}
    expected = {f"baselines/{model}.json", "dvc.lock", *written}
    assert expected <= changed <= expected | {"reports/report.md"}
