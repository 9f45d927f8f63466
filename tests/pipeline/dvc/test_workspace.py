"""A preset runs in a copy of the checkout that is updated and leaves the checkout alone."""

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.dvc import workspace
from pipeline.runtime.errors import ConfigError
from tests.pipeline.small_checkout import contents, git

COPIED = ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", "baselines/allo.json")
PRODUCED = ("dvc.lock", "data/allo/d", "models/allo/m", "reports/r", ".state/x/y", ".dvc/tmp/z")


def test_a_preset_gets_a_copy_with_its_own_params_and_the_checkouts_cache(checkout: Path):
    before = contents(checkout)
    assert workspace.prepare_workspace(checkout, "default") == checkout
    work = workspace.prepare_workspace(checkout, "smoke")
    assert work == checkout / ".presets" / "smoke"
    assert contents(checkout) == before
    copied = contents(work)
    assert [copied[name] for name in COPIED] == [before[name] for name in COPIED]
    params = YAML(typ="safe").load(work / "params.yaml")
    assert params["preset"] == "smoke"
    assert params["allo"]["train"]["steps"] == 2000
    assert params["allo"]["train"]["learning_rate"] == 1e-3
    assert "dvc.lock" not in copied
    assert not [name for name in copied if name.startswith(("models/", "reports/"))]
    assert (work / ".dvc" / "config.local").read_text() == (
        f'[core]\n    no_scm = true\n[cache]\n    dir = "{checkout}/.dvc/cache"\n'
    )
    assert not (work / ".git").exists()


def test_edits_new_and_removed_files_travel_and_what_was_made_stays(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    for name in PRODUCED:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("made")
    (work / "src" / "stray.py").write_text("of an older version\n")
    os.utime(work / "baselines" / "iqn.json", (5, 5))
    (checkout / "src" / "a.py").write_text("edited\n")
    (checkout / "inputs" / "allo" / "new.txt").write_text("....\n")
    (checkout / "pipeline" / "c.py").unlink()
    git(checkout, "rm", "-q", "docs/d.md", "src/deep/b.py")
    before = contents(work)
    workspace.prepare_workspace(checkout, "smoke")
    for name in ("pipeline/c.py", "docs/d.md", "src/deep/b.py", "src/stray.py"):
        del before[name]
    changed = {"src/a.py": b"edited\n", "inputs/allo/new.txt": b"....\n"}
    assert contents(work) == before | changed
    assert (work / "baselines" / "iqn.json").stat().st_mtime == 5
    assert "dvc.lock" not in contents(workspace.prepare_workspace(checkout, "large"))


def test_a_preset_outside_a_git_checkout_is_refused(checkout: Path):
    (checkout / ".git").rename(checkout / "not-git")
    why = r"a preset runs in a copy of what git lists; run from a git checkout, with git \(fatal"
    with pytest.raises(ConfigError, match=why):
        workspace.prepare_workspace(checkout, "smoke")
