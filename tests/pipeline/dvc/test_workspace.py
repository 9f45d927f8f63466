"""A preset runs in a copy of the checkout that is updated and leaves the checkout alone."""

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.dvc import workspace
from pipeline.runtime.errors import ConfigError
from tests.pipeline.small_checkout import contents, git


def test_the_default_run_is_made_in_place(checkout: Path):
    before = contents(checkout)
    assert workspace.prepare_workspace(checkout, "default") == checkout
    assert contents(checkout) == before


def test_a_preset_gets_a_copy_with_its_own_params_and_leaves_the_checkout_alone(checkout: Path):
    before = contents(checkout)
    work = workspace.prepare_workspace(checkout, "smoke")
    assert work == checkout / ".presets" / "smoke"
    assert contents(checkout) == before
    copied = contents(work)
    for name in (
        "src/a.py",
        "src/deep/b.py",
        "pipeline/c.py",
        "docs/d.md",
        "baselines/allo.json",
        ".dvc/config",
    ):
        assert copied[name] == before[name]
    overlaid = YAML(typ="safe").load(work / "params.yaml")
    assert overlaid["preset"] == "smoke"
    assert overlaid["allo"]["train"]["steps"] == 2000
    assert overlaid["allo"]["train"]["learning_rate"] == 1e-3
    assert not {
        name for name in copied if name.startswith(("models/", "reports/")) or name == "dvc.lock"
    }


def test_a_workspace_shares_the_cache_and_is_no_git_repository_of_its_own(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    assert (work / ".dvc" / "config.local").read_text() == (
        f'[core]\n    no_scm = true\n[cache]\n    dir = "{checkout}/.dvc/cache"\n'
    )
    assert not (work / ".git").exists()


def test_uncommitted_edits_and_new_files_travel(checkout: Path):
    workspace.prepare_workspace(checkout, "smoke")
    (checkout / "src" / "a.py").write_text("edited\n")
    (checkout / "inputs" / "allo" / "new.txt").write_text("....\n")
    work = workspace.prepare_workspace(checkout, "smoke")
    assert (work / "src" / "a.py").read_text() == "edited\n"
    assert (work / "inputs" / "allo" / "new.txt").read_text() == "....\n"


def test_files_that_are_gone_from_the_checkout_go_from_the_workspace(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    (checkout / "src" / "a.py").unlink()
    git(checkout, "rm", "-q", "docs/d.md", "src/deep/b.py")
    (work / "src" / "stray.py").write_text("of an older version\n")
    workspace.prepare_workspace(checkout, "smoke")
    for name in ("src/a.py", "docs/d.md", "src/deep/b.py", "src/stray.py"):
        assert not (work / name).exists(), name


def test_what_the_preset_has_made_stays(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    for name in (
        "dvc.lock",
        "data/allo/dataset.safetensors",
        "models/allo/m",
        "reports/r",
        ".state/x/y",
        ".dvc/tmp/z",
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("made")
    before = contents(work)
    workspace.prepare_workspace(checkout, "smoke")
    assert contents(work) == before


def test_equal_files_keep_their_time(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    os.utime(work / "src" / "a.py", (5, 5))
    workspace.prepare_workspace(checkout, "smoke")
    assert (work / "src" / "a.py").stat().st_mtime == 5


def test_two_presets_do_not_meet(checkout: Path):
    smoke, large = (workspace.prepare_workspace(checkout, preset) for preset in ("smoke", "large"))
    (smoke / "dvc.lock").write_text("smoke's")
    workspace.prepare_workspace(checkout, "large")
    assert not (large / "dvc.lock").exists()
    assert (smoke / "dvc.lock").read_text() == "smoke's"


def test_a_preset_outside_a_git_checkout_is_refused(checkout: Path):
    (checkout / ".git").rename(checkout / "not-git")
    with pytest.raises(
        ConfigError,
        match="a preset runs in a copy of what git lists; run from a git checkout, with git",
    ):
        workspace.prepare_workspace(checkout, "smoke")
