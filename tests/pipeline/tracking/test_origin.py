"""Tests what a run says of its origin: changed params, commit and user."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.tracking import origin
from quatrain.presets import parse
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


def test_params_of_the_commit_are_said_to_be_that(commit: Path):
    assert described(commit) == "Params: those of the commit's params.yaml."
    edit(commit / "params.yaml", "steps: 500", "steps: 501")
    assert described(commit) == "Params: those of the commit's params.yaml.", "it is iqn's"
    title = "Params changed from the commit's params.yaml:"
    assert described(commit, model=None) == f"{title}\n\n* `iqn.train.steps`: 500 -> 501"


def test_changed_params_stand_beside_those_of_the_commit_and_its_preset(commit: Path):
    edit(commit / "params.yaml", "steps: 2000", "steps: 100, tried: true")
    assert described(commit).splitlines()[2:] == [
        "* `allo.train.steps`: 2000 -> 100",
        "* `allo.train.tried`: absent -> True",
    ]
    work = commit / ".presets" / "smoke"
    work.mkdir(parents=True)
    smoke = parse(commit / "params.yaml") | {"preset": "smoke", "seed": 5}
    with (work / "params.yaml").open("w") as file:
        YAML().dump(smoke, file)
    said = described(work, "smoke")
    assert said.startswith("Params changed from the commit's params.yaml with presets/smoke.yaml:")
    assert said.splitlines()[2:] == ["* `seed`: 0 -> 5", "* `allo.train.tried`: absent -> True"]


def test_without_a_commit_nothing_is_compared(tmp_path: Path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    why = "The params cannot be compared with a commit: fatal: not a git repository"
    assert described(tmp_path).startswith(why)


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
