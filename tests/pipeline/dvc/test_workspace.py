"""A preset runs in a copy of the checkout that is updated and leaves the checkout alone."""

import os
from pathlib import Path
from typing import Any

import pytest
from configobj import ConfigObj
from dvc.repo import Repo
from ruamel.yaml import YAML

from pipeline.dvc import workspace
from quatrain.errors import ConfigError, DataError
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
    assert settings(work) == {
        "core": {"no_scm": "true"},
        "cache": {"dir": f"{checkout}/.dvc/cache"},
    }
    assert not (work / ".git").exists()


def settings(work: Path) -> dict[str, Any]:
    return ConfigObj(str(work / ".dvc" / "config.local")).dict()


def test_a_preset_has_the_checkouts_cache_remotes_and_credentials(checkout: Path):
    (checkout / ".dvc" / "config").write_text(
        "['remote \"disk\"']\nurl = ../../store\n['remote \"store\"']\nurl = https://host/store\n"
    )
    local = checkout / ".dvc" / "config.local"
    local.write_text(
        "[core]\nremote = store\n[cache]\ndir = ../../cache\ntype = copy\n"
        "['remote \"store\"']\npassword = 'a, \"b\"#c'\n"
    )
    local.chmod(0o600)
    for _ in range(2):  # a second run keeps what the first wrote
        work = workspace.prepare_workspace(checkout, "smoke")
        assert settings(work) == {
            "core": {"remote": "store", "no_scm": "true"},
            "cache": {"dir": f"{checkout.parent}/cache", "type": "copy"},
            'remote "disk"': {"url": f"{checkout.parent}/store"},
            'remote "store"': {"url": "https://host/store", "password": 'a, "b"#c'},
        }
        assert (work / ".dvc" / "config.local").stat().st_mode & 0o777 == 0o600
    with Repo(str(work)) as repo:
        assert repo.cache.local.path.startswith(f"{checkout.parent}/cache/")
        assert repo.config["remote"]["store"]["password"] == 'a, "b"#c'


@pytest.mark.parametrize(
    "text", ["[core\npassword = hunter2", "[core]\nnothing = hunter2\n", "password hunter2\n"]
)
def test_settings_that_dvc_cannot_read_are_refused(text: str, checkout: Path):
    (checkout / ".dvc").mkdir(exist_ok=True)
    (checkout / ".dvc" / "config.local").write_text(text)
    why = r"^\.dvc/config or \.dvc/config\.local: dvc cannot read it; `dvc config --list` says why$"
    with pytest.raises(DataError, match=why):
        workspace.prepare_workspace(checkout, "smoke")


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
