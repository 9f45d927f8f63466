"""Tests what a run says of its origin: changed params, commit and user."""

from pathlib import Path

import pytest

from pipeline.tracking import origin
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import git

PARAMS = """\
seed: 0
allo:
  train: {steps: 2000, learning_rate: 0.001}
iqn:
  train: {steps: 500}
"""
PRESET = "preset: smoke\nallo: {train: {steps: 100}}\n"


@pytest.fixture
def commit(tmp_path: Path) -> Path:
    """A checkout with params.yaml, a preset, and what the pipeline writes."""
    (tmp_path / "presets").mkdir()
    (tmp_path / "reports").mkdir()
    for name, text in (
        ("params.yaml", PARAMS),
        ("presets/smoke.yaml", PRESET),
        ("dvc.lock", "schema: '2.0'\n"),
        ("reports/report.md", "# Passed\n"),
    ):
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    path.write_text(path.read_text().replace(before, after))


def described(root: Path, preset: str = "default", model: str | None = "allo") -> str:
    return origin.changes(root, preset, model)


def test_what_the_pipeline_writes_makes_no_checkout_dirty(commit: Path):
    work = commit / ".presets" / "smoke"
    work.mkdir(parents=True)
    edit(commit / "dvc.lock", "2.0", "2.1")
    edit(commit / "reports" / "report.md", "Passed", "Broken")
    assert not any(origin.is_dirty(root) for root in (commit, work))
    edit(commit / "params.yaml", "2000", "1999")
    assert all(origin.is_dirty(root) for root in (commit, work))


def test_the_origin_has_the_names_that_the_ui_shows(commit: Path, monkeypatch: Patch):
    git(commit, "config", "remote.origin.url", "https://me:secret@example.org/q.git")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    head = git(commit, "rev-parse", "HEAD").strip()
    assert origin.code_tags(commit) == {
        "git.commit": head,
        "git.dirty": "false",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": head,
        "mlflow.source.git.branch": "main",
        "mlflow.source.git.repoURL": "https://example.org/q.git",
        "mlflow.user": "ada",
    }
