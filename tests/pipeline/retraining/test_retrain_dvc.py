"""A retraining with the real dvc: what it pushes can be pulled, and what somebody pushed is not
computed again.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.commands import retrain
from pipeline.dvc.repro import DVC
from pipeline.retraining import worktree
from tests.pipeline.retrained_checkout import Night, made_night, made_remote
from tests.pipeline.small_checkout import git

STAGES = """
stages:
  tiny:
    cmd: python tiny.py
    deps: [params.yaml]
    outs: [learner]
    metrics:
      - reports/tiny.json: {cache: false}
"""
TINY = """
import os, pathlib
seed = next(line for line in open("params.yaml") if line.startswith("seed"))
pathlib.Path("learner").write_text(seed)
pathlib.Path("reports/tiny.json").write_text('{"score": %s}' % seed.split()[1])
with open(os.environ["NIGHT"] + "/calls", "a") as file:
    file.write("computed " + seed)
"""
REPRO = """
import os, subprocess, sys
path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
command = [sys.executable, "-m", "dvc", "repro", "--quiet"]
sys.exit(subprocess.call(command, env=os.environ | {"PATH": path}))
"""


def dvc(folder: Path, *arguments: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*DVC, *arguments, "--quiet"], cwd=folder, env=os.environ | {"PATH": path}, check=True
    )


@pytest.fixture
def night(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Seed 0 is computed, committed and pushed to a git remote and to a folder named by a relative
    path.
    """
    night = made_night(checkout, tmp_path / "night", monkeypatch)
    monkeypatch.setattr(worktree, "DVC", DVC)
    made_remote(night, tmp_path / "remote")
    (tmp_path / "storage").mkdir()
    for name, text in (
        ("dvc.yaml", STAGES),
        ("tiny.py", TINY),
        ("pipeline/commands/repro.py", REPRO),
    ):
        (checkout / name).write_text(text)
    (checkout / "dvc.lock").unlink()
    (checkout / ".dvc" / "config").unlink()
    dvc(checkout, "init", "--force")
    dvc(checkout, "remote", "add", "--default", "storage", "../storage")
    dvc(checkout, "repro")
    dvc(checkout, "push", "--run-cache")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "seed 0")
    git(checkout, "push", "-q", "-u", "origin", "main")
    night.set("calls")
    return night


@pytest.mark.slow
def test_what_a_retraining_pushes_can_be_pulled_and_what_was_pushed_is_not_computed_again(
    night: Night, tmp_path: Path
):
    shutil.rmtree(night.root / ".dvc" / "cache")
    (night.root / "learner").unlink()
    before = git(night.root, "status", "--porcelain", "--branch")
    assert retrain.main(["--push"]) == 0
    assert night.ended().kind == "unchanged"
    assert night.calls() == []

    assert retrain.main(["--push", "--seed", "5"]) == 0
    assert night.calls("computed") == ["computed seed: 5"]
    assert "| score    | 0      | 5 " in night.ended().message.body
    assert git(night.root, "status", "--porcelain", "--branch") == before

    review = tmp_path / "review"
    git(tmp_path, "clone", "-q", "-b", night.proposed(), str(tmp_path / "remote"), str(review))
    dvc(review, "pull")
    assert (review / "learner").read_text().startswith("seed: 5")
    dvc(review, "repro")
    assert night.calls("computed") == ["computed seed: 5"]
    assert git(review, "status", "--porcelain") == ""

    shutil.rmtree(night.root / ".dvc" / "cache")
    assert (
        retrain.main(["--push", "--seed", "5"]) == 0
    )  # another machine, another day: the run cache has nothing new
    assert len(night.branches()) == 2
