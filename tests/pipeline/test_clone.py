"""Tests the whole pipeline in a fresh clone; a minute or two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.dvc import workspace
from tests.conftest import ROOT
from tests.pipeline.small_checkout import contents, git

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Returns a clone in which the uncommitted edits of this checkout are committed."""
    root = tmp_path / "clone"
    git(ROOT, "clone", "-q", "--no-hardlinks", str(ROOT), str(root))
    for name in sorted(workspace.files_of_git(ROOT)):
        workspace.copy_if_changed(ROOT / name, root / name)
    git(root, "config", "user.name", "test")
    git(root, "config", "user.email", "test@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "edits")
    return root


def call(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "DVC_", "PYTEST_"))
    }
    environment |= {"PATH": path, "PYTHONPATH": f"{root / 'src'}:{root}", "DVC_NO_ANALYTICS": "1"}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=280
    )


def test_a_preset_runs_once_and_then_not_again(clone: Path):
    before = contents(clone)
    first = call(clone, "python", "-m", "pipeline.commands.repro", "--preset", "smoke")
    assert first.returncode in (0, 4), first.stdout + first.stderr
    assert "Traceback" not in first.stderr
    assert (
        "gate: passed" in first.stdout
        or "no baseline: preset 'smoke' has no baseline yet" in first.stderr
    )
    created = contents(clone).keys() - before.keys()
    assert {
        name
        for name in created
        if not name.startswith((".mlflow/", ".dvc/")) and "__pycache__" not in name
    } == set()
    assert {
        name for name, content in contents(clone).items() if before.get(name, content) != content
    } == set()
    work = clone / ".presets" / "smoke"
    created = contents(work)
    assert {
        "dvc.lock",
        "reports/report.md",
        "reports/allo/verdict.json",
        "models/allo/history.csv",
    } <= created.keys()
    second = call(clone, "python", "-m", "pipeline.commands.repro", "--preset", "smoke")
    assert second.returncode == first.returncode
    assert "Running stage" not in second.stdout
    assert contents(work)["dvc.lock"] == created["dvc.lock"]


def test_an_experiment_is_stored_compared_and_plotted(clone: Path):
    small = ["allo.collect.num_envs=30", "allo.collect.steps_per_env=200", "allo.network.hidden=16"]
    small += ["allo.train.steps=400", "allo.train.evaluate_every=200", "allo.network.layers=2"]
    changes = [argument for change in small for argument in ("-S", change)]
    run = call(clone, "dvc", "exp", "run", "-n", "small", *changes)
    assert run.returncode == 0, run.stdout + run.stderr
    shown = call(clone, "dvc", "exp", "show", "--csv", "--no-pager").stdout
    assert "small" in shown
    assert "cosine_mean" in shown
    assert "allo.train.steps" in shown
    assert "cosine_mean" in call(clone, "dvc", "metrics", "diff", "--all").stdout
    assert "allo.train.steps" in call(clone, "dvc", "params", "diff").stdout
    drawn = call(clone, "dvc", "plots", "show")
    assert drawn.returncode == 0, drawn.stderr
    assert "allo cosine" in (clone / "dvc_plots" / "index.html").read_text()
    gate = call(clone, "python", "-m", "pipeline.commands.gate")
    assert gate.returncode == 4
    assert "gate: allo: worse: cosine_mean" in gate.stderr
    assert call(clone, "dvc", "repro").stdout.count("Running stage") == 0
