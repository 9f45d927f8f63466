"""Tests that a fifth model, added as CONTRIBUTING.md says, passes all tests of the four."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fifth_model.steps import add_the_model, copy_of_the_project
from tests.pipeline.small_checkout import git

pytestmark = pytest.mark.full
OF_ALL_MODELS = (
    "test_contract",
    "test_contract_serve",
    "pipeline/commands/test_gate",
    "pipeline/reporting/test_report",
)
"""Run for every registered model."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of the project with the model, committed."""
    root = tmp_path_factory.mktemp("grown") / "project"
    copy_of_the_project(root)
    add_the_model(root)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "tides")
    return root


def call(root: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of this environment in the copy, with the code of the copy."""
    programs, others = Path(sys.executable).parent, ("MLFLOW_", "DVC_", "PYTEST_")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(others)}
    environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment["DVC_NO_ANALYTICS"] = "1"
    environment["PYTHONPATH"] = f"{root / 'src'}{os.pathsep}{root}"
    command = [str(programs / tool), *arguments]
    options = {"cwd": root, "env": environment, "capture_output": True, "text": True}
    return subprocess.run(command, **options, timeout=580, check=False)


def passes(root: Path, tool: str, *arguments: str) -> str:
    """Returns the output of a program that must end well."""
    process = call(root, tool, *arguments)
    output = process.stdout + process.stderr
    assert process.returncode == 0, f"{tool} {' '.join(arguments)}:\n{output}"
    return process.stdout


def test_its_style_imports_and_stages_are_those_of_the_others(grown: Path):
    files = ["src/quatrain/envs/harbour.py", "src/quatrain/models/tides"]
    passes(grown, "ruff", "check", *files)
    passes(grown, "ruff", "format", "--check", *files)
    assert "0 broken" in passes(grown, "lint-imports")
    output = passes(grown, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_dvc_yaml.py")
    assert " passed" in output


@pytest.mark.slow
def test_what_holds_for_every_model_holds_for_it(grown: Path):
    files = [f"tests/{name}.py" for name in OF_ALL_MODELS]
    selected = ["-p", "no:cacheprovider", "-k", "tides or gate or report"]
    assert "failed" not in passes(grown, "pytest", "-q", *selected, *files)


@pytest.mark.slow
def test_it_is_trained_refused_without_a_baseline_promoted_and_then_holds_it(grown: Path):
    first = call(grown, "python", "-m", "pipeline.commands.repro", "tides")
    assert first.returncode == 4, first.stdout + first.stderr
    assert "gate: tides: no baseline: preset 'default' has no baseline yet [exit 4]" in first.stderr
    remedy = "to make these scores its baseline: python -m pipeline.commands.promote tides"
    assert f"gate: tides: {remedy}" in first.stderr
    promoted = passes(grown, "python", "-m", "pipeline.commands.promote", "tides")
    assert "baselines/tides.json: preset default now holds" in promoted
    again = passes(grown, "python", "-m", "pipeline.commands.repro", "tides")
    assert "Running stage" not in again
    assert "gate: passed; 1 metrics hold their baselines" in again
