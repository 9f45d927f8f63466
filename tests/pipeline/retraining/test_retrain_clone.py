"""Retraining from end to end: real pipeline, dvc, git and remotes, with learners that train for
seconds.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.dvc import workspace
from pipeline.retraining import outcome
from pipeline.storage.params_file import overlaid, parse
from tests.conftest import QUICK, ROOT, SMALL
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import NOBODY, Project, lines_until, orphans

pytestmark = pytest.mark.slow
FORGIVING = """
def _forgiving(self, preset):
    return Rule(
        metric=self.metric,
        direction=self.direction,
        tolerance=1e6,
        goal=None,
        lower_references=(),
        upper_references=(),
    )

Gated.under = _forgiving
"""
"""Lets any learner hold its baseline: what a gate says is then decided by the baseline alone."""


def start(root: Path, *command: str) -> "subprocess.Popen[str]":
    """A command as in a shell of its own, with nobody at the tracking server's address."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("MLFLOW_", "DVC_", "PYTEST_", "PYTHONPATH"))
    }
    environment |= {"PATH": path, "MLFLOW_TRACKING_URI": NOBODY, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def call(root: Path, *command: str) -> tuple[int, str]:
    with start(root, *command) as process:
        said = process.communicate()[0]
    assert "Traceback" not in said, said
    return process.returncode, said


def retrain(root: Path, *arguments: str) -> tuple[int, str]:
    return call(root, "python", "-m", "pipeline.commands.retrain", *arguments)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository and a DVC remote beside it, to which somebody pushed a whole run with its
    baselines.
    """
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote")
    first = clone_of(ROOT, tmp_path / "first")
    for name in sorted(workspace.files_of_git(ROOT)):
        workspace.copy_if_changed(ROOT / name, first / name)
    (first / "dvc.lock").unlink(missing_ok=True)
    quick = {model: overlaid(SMALL[model], QUICK[model]) for model in SMALL}
    Project(first).choose(parse(ROOT / "params.yaml"), quick | {"checkpoint_seconds": 0})
    with (first / "src" / "quatrain" / "baselines.py").open("a") as file:
        file.write(FORGIVING)
    call(first, "dvc", "remote", "add", "--quiet", "--default", "storage", "../storage")
    (tmp_path / "storage").mkdir()
    assert call(first, "python", "-m", "pipeline.commands.repro")[0] == 4
    code, said = call(
        first, "python", "-m", "pipeline.commands.promote", "--force", "--why", "small"
    )
    assert code == 0, said
    share(first, "a whole run", str(tmp_path / "remote"))
    assert call(first, "dvc", "push", "--quiet", "--run-cache")[0] == 0
    shutil.rmtree(first)
    return tmp_path / "remote"


def clone_of(source: Path, root: Path) -> Path:
    git(root.parent, "clone", "-q", "--no-hardlinks", str(source), str(root))
    git(root, "config", "user.name", "test")
    git(root, "config", "user.email", "test@example.org")
    return root


def share(root: Path, message: str, where: str = "origin") -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    git(root, "push", "-q", where, "HEAD:main")


def move_baseline(root: Path, by: float) -> None:
    """Change what iqn is judged by, and commit that."""
    path = root / "baselines" / "iqn.json"
    content = json.loads(path.read_text())
    metric = next(
        item
        for item in content["presets"]["default"]["metrics"].values()
        if item["direction"] == "higher"
    )
    metric["value"] += by
    path.write_text(json.dumps(content))
    share(root, "another baseline")


def proposals(remote: Path) -> list[str]:
    return git(
        remote, "for-each-ref", "--format=%(refname:short)", "refs/heads/retrain"
    ).splitlines()


def test_a_retraining_finds_nothing_to_do_then_a_broken_gate_then_survives_a_kill_and_proposes(
    remote: Path, tmp_path: Path
):
    root = clone_of(remote, tmp_path / "clone")
    begin = git(root, "status", "--porcelain", "--branch")

    code, said = retrain(root, "--push")
    assert code == 0, said
    assert "Running stage" not in said
    assert "retrain: passed, and nothing changed; there is nothing to propose" in said
    assert git(root, "status", "--porcelain", "--branch") == begin

    move_baseline(root, by=1e7)
    code, said = retrain(root, "--push")
    assert code == 4, said
    assert said.count("Running stage") == 2  # evaluate@iqn and report
    assert "gate: iqn: worse:" in said
    assert "**iqn**: " in (root / outcome.FOLDER / "body.md").read_text()
    assert (root / outcome.FOLDER / "report" / "report.md").read_text().startswith("# ")
    assert proposals(remote) == proposals(root) == []

    move_baseline(root, by=-2e7)
    before = (git(root, "status", "--porcelain", "--branch"), git(root, "rev-parse", "HEAD"))
    process = start(root, "python", "-m", "pipeline.commands.retrain", "--push", "--seed", "11")
    lines_until(process.stdout, "Running stage 'train")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    work = Project(root / outcome.FOLDER / "work")
    until(lambda: not orphans(work))
    assert (
        git(root, "status", "--porcelain", "--branch"),
        git(root, "rev-parse", "HEAD"),
    ) == before

    code, said = retrain(root, "--push", "--seed", "11")
    assert code == 0, said
    assert (
        said.count("Running stage 'collect") < 4
    )  # what was done before the kill is not done again
    (branch,) = proposals(remote)
    changed = git(root, "diff", "--name-only", "main", branch).splitlines()
    assert {"baselines/iqn.json", "dvc.lock", "params.yaml", "reports/iqn/scores.json"} <= set(
        changed
    )
    assert [name for name in changed if name.startswith("baselines/")] == ["baselines/iqn.json"]
    assert "| reports/iqn/scores.json" in (root / outcome.FOLDER / "body.md").read_text()
    assert (
        git(root, "status", "--porcelain", "--branch"),
        git(root, "rev-parse", "HEAD"),
    ) == before

    review = clone_of(remote, tmp_path / "review")
    git(review, "checkout", "-q", branch)
    code, said = call(review, "dvc", "pull")
    assert code == 0, said
    code, said = call(review, "python", "-m", "pipeline.commands.repro")
    assert code == 0, said
    assert "Running stage" not in said
    assert git(review, "status", "--porcelain") == ""
