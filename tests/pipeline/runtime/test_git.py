"""git is asked about the folder's own repository, and what it refuses to tell is unknown."""

from pathlib import Path

import pytest

from pipeline.runtime.git import commit, has_changes, revision
from pipeline.tracking import origin
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_checkout import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit, from which no file differs."""
    return make_repository(tmp_path / "repository", "code = 1\n")


def make_repository(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "code.py").write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "start")
    return folder


def test_a_refusal_of_git_is_told_once_and_recorded_as_unknown(
    repository: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for _ in range(2):
        tags = origin.code_tags(repository)
        assert (tags["git.commit"], tags["git.dirty"]) == ("unknown", "unknown")
        assert "mlflow.source.git.commit" not in tags
        assert revision(repository, ["code.py"]) == "unknown"
    [line] = capsys.readouterr().err.splitlines()
    start = f"git does not tell commit and changes of {repository}, which are unknown: fatal: "
    assert line.startswith(f"{start}detected dubious ownership in repository at ")


def test_without_git_its_absence_is_told(repository: Path, monkeypatch: Patch, capsys: Capture):
    monkeypatch.setenv("PATH", str(repository))
    assert (commit(repository), has_changes(repository, ["."])) == ("unknown", None)
    assert "unknown: git cannot be run: No such file or directory" in capsys.readouterr().err


def test_no_repository_and_no_commit_are_none(tmp_path: Path, capsys: Capture):
    assert revision(tmp_path, ["."]) == "none"
    git(tmp_path, "init", "-q")
    assert revision(tmp_path, ["."]) == "none"
    assert capsys.readouterr().err == ""


def test_a_revision_says_whether_its_code_changed(repository: Path):
    head = git(repository, "rev-parse", "HEAD")[:12]
    assert revision(repository, ["code.py"]) == head
    (repository / "new.py").write_text("")
    assert revision(repository, ["code.py"]) == head
    assert revision(repository, ["."]) == f"{head}+changes"
    (repository / "code.py").write_text("code = 2\n")
    assert revision(repository, ["code.py"]) == f"{head}+changes"


def test_variables_of_a_calling_git_name_no_other_repository(
    repository: Path, tmp_path: Path, monkeypatch: Patch
):
    expected = commit(repository)
    other = make_repository(tmp_path / "other", "code = 3\n")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert (commit(repository), has_changes(repository, ["."])) == (expected, False)
