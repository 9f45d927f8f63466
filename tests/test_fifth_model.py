"""Tests that a fifth model, added as CONTRIBUTING.md says, passes all tests of the four."""

from pathlib import Path

import pytest

from tests.fifth_model.steps import add_the_model, copy_of_the_project
from tests.pipeline.small_checkout import call, git

pytestmark = pytest.mark.full
OF_ALL_MODELS = (
    "test_contract",
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


def test_its_style_imports_and_stages_are_those_of_the_others(grown: Path):
    files = ["src/quatrain/envs/harbour.py", "src/quatrain/models/tides"]
    call(grown, "ruff", "check", *files)
    call(grown, "ruff", "format", "--check", *files)
    assert "0 broken" in call(grown, "lint-imports")
    call(grown, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_dvc_yaml.py")


@pytest.mark.slow
def test_what_holds_for_every_model_holds_for_it(grown: Path):
    files = [f"tests/{name}.py" for name in OF_ALL_MODELS]
    selected = ["-p", "no:cacheprovider", "-k", "tides or gate or report"]
    call(grown, "pytest", "-q", *selected, *files)


@pytest.mark.slow
def test_it_is_trained_refused_without_a_baseline_promoted_and_then_holds_it(grown: Path):
    first = call(grown, "python", "-m", "pipeline.commands.repro", "tides", code=4)
    assert "gate: tides: no baseline: preset 'default' has no baseline yet [exit 4]" in first
    remedy = "`make promote MODELS=tides` stores these scores as the first"
    assert f"gate: tides: {remedy}" in first
    promoted = call(grown, "python", "-m", "pipeline.commands.promote", "tides")
    assert "baselines/tides.json: preset default now holds" in promoted
    again = call(grown, "python", "-m", "pipeline.commands.repro", "tides")
    assert "Running stage" not in again
    assert "gate: passed; 1 metrics hold their baselines" in again
