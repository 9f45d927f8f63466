"""A preset runs in a copy of the checkout that is updated and leaves the checkout alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc.scm import NoSCM
from ruamel.yaml import YAML

from pipeline.cli import main
from pipeline.dvc import workspace
from quatrain.errors import ConfigError, DataError
from tests.pipeline.fixture_types import Failure
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import contents, git

COPIED = ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", "baselines/allo.json")
PRODUCED = ("dvc.lock", "data/allo/d", "models/allo/m", "reports/r", ".state/x/y", ".dvc/tmp/z")
CONFIG = """
['remote "disk"']
url = ../../store
"""
LOCAL = """
[core]
remote = store
[cache]
dir = ../../cache
['remote "store"']
url = https://host/store
password = 'a, "b"#c'
"""


def test_a_preset_gets_a_copy_with_params_of_its_own(checkout: Path):
    before = contents(checkout)
    assert workspace.prepare_workspace(checkout, "default") == checkout
    work = workspace.prepare_workspace(checkout, "smoke")
    assert work == checkout / ".presets" / "smoke"
    assert contents(checkout) == before
    copied = contents(work)
    assert [copied[name] for name in COPIED] == [before[name] for name in COPIED]
    assert [name for name in copied if name.startswith(("models/", "reports/", "dvc.lock"))] == []
    params = YAML(typ="safe").load(work / "params.yaml")
    assert params["preset"] == "smoke"
    assert params["allo"]["train"]["steps"] == 2000
    assert params["allo"]["train"]["learning_rate"] == 1e-3


def test_a_preset_has_the_checkouts_cache_remotes_and_credentials(checkout: Path):
    (checkout / ".dvc" / "config").write_text(CONFIG)
    (checkout / ".dvc" / "config.local").write_text(LOCAL)
    for _ in range(2):  # a second run keeps what the first wrote
        work = workspace.prepare_workspace(checkout, "smoke")
    assert (work / ".dvc" / "config.local").stat().st_mode & 0o777 == 0o600
    with Repo(str(work)) as repo:
        assert isinstance(repo.scm, NoSCM)
        assert repo.cache.local.path.startswith(f"{checkout.parent}/cache/")
        assert repo.config["core"]["remote"] == "store"
        assert repo.config["remote"]["disk"]["url"] == f"{checkout.parent}/store"
        assert repo.config["remote"]["store"]["password"] == 'a, "b"#c'


@pytest.mark.parametrize("text", ["[core\npassword = hunter2", "[core]\nnothing = hunter2\n"])
def test_settings_that_dvc_cannot_read_are_refused(text: str, checkout: Path):
    (checkout / ".dvc" / "config.local").write_text(text)
    why = r"^\.dvc/config or \.dvc/config\.local: dvc cannot read it; `dvc config --list` says why$"
    with pytest.raises(DataError, match=why):
        workspace.prepare_workspace(checkout, "smoke")


def test_dvc_runs_with_this_python_the_copys_code_and_the_checkouts_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """User and password of a server are variables, whatever they were before."""
    work = tmp_path / ".presets" / "smoke"
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "of before")
    variables = workspace.environment(tmp_path, work)
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables["PYTHONPATH"] == f"{work}/src"
    assert variables["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter22@127.0.0.1:1")
    variables = workspace.environment(tmp_path, work)
    names = ("URI", "USERNAME", "PASSWORD")
    values = [variables[f"MLFLOW_TRACKING_{name}"] for name in names]
    assert values == ["http://127.0.0.1:1", "me", "hunter22"]


def test_edits_new_and_removed_files_travel_and_what_was_made_stays(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    for name in (*PRODUCED, "src/of_an_older_version.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("made")
    (work / "inputs" / "allo" / "new.txt").mkdir()  # a folder that becomes a file
    os.utime(work / "baselines" / "iqn.json", (5, 5))
    before = contents(work)
    (checkout / "src" / "a.py").write_text("edited\n")
    (checkout / "inputs" / "allo" / "new.txt").write_text("....\n")
    (checkout / "pipeline" / "c.py").unlink()
    git(checkout, "rm", "-q", "docs/d.md", "src/deep/b.py")
    workspace.prepare_workspace(checkout, "smoke")
    for name in ("pipeline/c.py", "docs/d.md", "src/deep/b.py", "src/of_an_older_version.py"):
        del before[name]
    changed = {"src/a.py": b"edited\n", "inputs/allo/new.txt": b"....\n"}
    assert contents(work) == before | changed
    assert (work / "baselines" / "iqn.json").stat().st_mtime == 5


def test_scores_of_a_preset_are_stale_when_an_input_of_the_checkout_changes(
    checkout: Path, failure: Failure
):
    module = checkout / "inputs" / "allo" / "own.py"
    module.write_text("speed = 1\n")
    evaluated = Workspace(workspace.prepare_workspace(checkout, "smoke"))
    evaluated.train("c" * 64)
    evaluated.score("smoke")
    options = ("--preset", "smoke", "allo")
    assert main(["promote", *options]) == main(["gate", *options]) == 0
    for change in (lambda: module.write_text("speed = 2\n"), module.unlink):
        change()
        remedy = "run `make repro PRESET=smoke MODELS=allo`"
        why = f"inputs/allo/own.py changed after preset smoke was run; {remedy}"
        for verb in ("gate", "promote"):
            assert failure(main, verb, *options, code=4) == f"{verb}: {why}"


def test_inputs_that_git_ignores_travel_to_a_preset(checkout: Path):
    (checkout / ".gitignore").write_text("*.npz\n")
    (checkout / "inputs" / "allo" / "large.npz").write_bytes(b"kept by DVC")
    work = workspace.prepare_workspace(checkout, "smoke")
    assert (work / "inputs" / "allo" / "large.npz").read_bytes() == b"kept by DVC"


def test_a_preset_outside_a_git_checkout_is_refused(checkout: Path):
    (checkout / ".git").rename(checkout / "not-git")
    why = r"a preset runs in a copy of what git lists; run from a git checkout, with git \(fatal"
    with pytest.raises(ConfigError, match=why):
        workspace.prepare_workspace(checkout, "smoke")


@pytest.mark.parametrize("text", ["", '{"write": {"/data/allo": {"pid": 12'])
def test_what_a_killed_dvc_left_goes_unless_a_dvc_works_in_the_folder(tmp_path: Path, text: str):
    lock = tmp_path / workspace.RWLOCK
    lock.parent.mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    for place, name, kept in (("reports", "dvc", True), ("..", "dvc", False), (".", "git", False)):
        lock.write_text(text)
        command = [sys.executable, "-S", "-c", "input()", name, "repro"]
        with subprocess.Popen(command, cwd=tmp_path / place, stdin=subprocess.PIPE) as process:
            workspace.drop_rwlock(tmp_path)
            process.communicate(b"\n")
        assert lock.exists() == kept
    workspace.drop_rwlock(tmp_path)  # there is none
