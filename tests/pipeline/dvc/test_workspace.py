"""A preset runs in a copy of the checkout that is updated and leaves the checkout alone."""

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.dvc import workspace
from pipeline.runtime.errors import ConfigError
from tests.pipeline.small_checkout import contents, git

COPIED = ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", "baselines/allo.json")
PRODUCED = (
    "data/allo/dataset.safetensors",
    "models/allo/m",
    "reports/r",
    ".state/x/y",
    ".dvc/tmp/z",
)


def test_the_default_run_is_made_in_place(checkout: Path):
    before = contents(checkout)
    assert workspace.prepare_workspace(checkout, "default") == checkout
    assert contents(checkout) == before


def test_a_preset_gets_a_copy_with_its_own_params_and_the_checkouts_cache(checkout: Path):
    before = contents(checkout)
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


def test_edits_new_and_removed_files_travel_and_equal_ones_keep_their_time(checkout: Path):
    work = workspace.prepare_workspace(checkout, "smoke")
    (work / "src" / "stray.py").write_text("of an older version\n")
    os.utime(work / "baselines" / "iqn.json", (5, 5))
    (checkout / "src" / "a.py").write_text("edited\n")
    (checkout / "inputs" / "allo" / "new.txt").write_text("....\n")
    (checkout / "pipeline" / "c.py").unlink()
    git(checkout, "rm", "-q", "docs/d.md", "src/deep/b.py")
    workspace.prepare_workspace(checkout, "smoke")
    assert (work / "src" / "a.py").read_text() == "edited\n"
    assert (work / "inputs" / "allo" / "new.txt").read_text() == "....\n"
    for name in ("pipeline/c.py", "docs/d.md", "src/deep/b.py", "src/stray.py"):
        assert not (work / name).exists(), name
    assert (work / "baselines" / "iqn.json").stat().st_mtime == 5


def test_what_a_preset_has_made_stays_and_is_no_other_presets(checkout: Path):
    smoke, large = (workspace.prepare_workspace(checkout, preset) for preset in ("smoke", "large"))
    for name in ("dvc.lock", *PRODUCED):
        (smoke / name).parent.mkdir(parents=True, exist_ok=True)
        (smoke / name).write_text("made")
    before = contents(smoke)
    workspace.prepare_workspace(checkout, "smoke")
    workspace.prepare_workspace(checkout, "large")
    assert contents(smoke) == before
    assert not (large / "dvc.lock").exists()


def test_a_preset_outside_a_git_checkout_is_refused(checkout: Path):
    (checkout / ".git").rename(checkout / "not-git")
    why = "a preset runs in a copy of what git lists; run from a git checkout, with git"
    with pytest.raises(ConfigError, match=why):
        workspace.prepare_workspace(checkout, "smoke")
