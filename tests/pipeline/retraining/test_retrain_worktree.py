"""A retraining's remotes, its working copy, and what is left when it is killed."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.commands import retrain
from pipeline.retraining import outcome
from pipeline.runtime import processes
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.retrained_checkout import Night
from tests.pipeline.small_checkout import clone, git

# A retraining has one thread; pytest may have loaded jax, which warns of any fork then.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
WORK = Path(".state", "retrain", "work")


@pytest.mark.full
def test_pushing_sends_outs_first_then_both_branches(night: Night, remote: Path, capsys: Capture):
    night.scores("iqn", return_mean=140.0)
    night.set("settings", "core.remote=storage\nremote.storage.url=/somewhere\n")
    night.set("refused", "fetch push")
    assert retrain.main(["--push"]) == 5
    out, err = capsys.readouterr()
    assert "retrain: the DVC remote did not give everything; what is missing is computed\n" in out
    why = "retrain: the DVC remote did not take the outs, so no branch was pushed; the lines above"
    assert err == f"{why} say why [exit 5]\n"
    assert night.branches() == night.branches(remote) == []
    assert night.state() == night.before

    night.set("refused", "")
    assert retrain.main([]) == 0
    commit = git(night.root, "rev-parse", night.proposed())
    assert night.branches(remote) == []
    night.set("date", "2026-02-04")
    night.set("calls")
    capsys.readouterr()
    assert retrain.main(["--push"]) == 0
    assert night.calls() == [
        "dvc fetch --quiet --run-cache",
        "repro --preset default",
        "promote --preset default --keep-champion iqn",
        "dvc push --quiet --run-cache",
    ]
    assert night.branches(remote) == night.branches()
    assert len(night.branches()) == 2
    assert git(remote, "rev-parse", night.proposed()) == commit
    said = f"retrain: proposed: branch {night.proposed()}, pushed to origin\n"
    assert capsys.readouterr().out == said
    assert git(remote, "for-each-ref", "refs/heads/main") == ""


def test_a_remote_that_is_ahead_or_away_is_told_of(night: Night, remote: Path, capsys: Capture):
    git(night.root, "push", "-q", "-u", "origin", "main")
    other = clone(remote.with_name("other"), night.root)
    git(other, "commit", "-q", "--allow-empty", "-m", "newer")
    git(other, "push", "-q", str(remote), "HEAD:main")
    assert retrain.main([]) == 0
    printed = "retrain: the upstream branch is ahead by 1; `git pull` first to retrain that\n"
    assert capsys.readouterr().out.startswith(printed)
    assert "newer" not in git(night.root, "log", "main")

    remote.rename(remote.with_name("away"))
    assert retrain.main([]) == 0
    command = "`git -c core.hooksPath=/dev/null fetch"
    assert f"retrain: goes on without origin: {command}" in capsys.readouterr().out
    assert retrain.main(["--push"]) == 5
    assert capsys.readouterr().err.startswith(f"retrain: {command} --quiet origin` failed")


@pytest.mark.full
def test_neither_hooks_nor_an_identity_are_needed(night: Night, monkeypatch: Patch):
    for name in ("pre-commit", "post-checkout", "commit-msg"):
        hook = night.root / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    monkeypatch.setenv("HOME", str(night.folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    night.lock("new outs\n")
    assert retrain.main([]) == 0
    author = git(night.root, "log", "-1", "--format=%an <%ae>", night.proposed())
    assert author == "quatrain retraining <retraining@localhost>\n"


@pytest.mark.full
def test_cache_journals_and_settings_are_the_checkouts_and_stay(night: Night):
    kept = {".dvc/cache/files", ".state/journal/train@allo-1"}
    for name in kept:
        (night.root / name).mkdir(parents=True)
        (night.root / name / "kept").write_text("kept")
    (night.root / ".dvc" / "config.local").write_text("secrets\n")
    night.set("exit", "255")
    work = night.root / WORK
    assert retrain.main(["--preset", "smoke"]) == 255
    assert [(work / name / "kept").read_text() for name in kept] == ["kept"] * 2
    assert (work / ".dvc" / "config.local").read_text() == "secrets\n"
    (night.root / ".dvc" / "config.local").write_text("renewed\n")
    assert retrain.main(["--preset", "smoke"]) == 255  # in the same copy
    assert (work / ".dvc" / "config.local").read_text() == "renewed\n"
    journals = work / ".presets" / "smoke" / ".state" / "journal"
    assert journals.resolve() == night.root / ".state" / "journal"
    night.set("exit", "0")
    assert retrain.main([]) == 0
    assert not work.exists()
    assert [(night.root / name / "kept").read_text() for name in kept] == ["kept"] * 2


@pytest.mark.full
def test_a_copy_that_a_killed_retraining_left_is_no_obstacle(night: Night):
    work = night.root / WORK
    night.set("exit", "255")
    assert retrain.main([]) == 255
    (work / ".state" / "journal").unlink()  # half made
    assert retrain.main([]) == 255
    git(night.root, "worktree", "lock", str(work))
    (work / ".git").unlink()
    assert retrain.main([]) == 255
    (night.root / ".git" / "worktrees" / "work" / "index.lock").touch()  # by a killed git
    (work / "dvc.lock").write_text("half")
    (work / "stray.py").write_text("stray")
    night.set("exit", "0")
    assert retrain.main([]) == 0
    assert night.ended().kind == "unchanged"
    assert night.state() == night.before


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_lets_the_run_save_and_the_next_one_continues(night: Night, number: int):
    """After SIGKILL the run is told by the system, and the next one waits for it."""
    outcome.write(
        night.root / outcome.FOLDER, outcome.Outcome("unchanged", 0, outcome.Message("", ""))
    )
    night.set("endless")
    begun = night.folder / "begun"
    process = night.start()
    until(lambda: begun.exists() and begun.read_text() != "")
    process.send_signal(number)
    said = process.communicate()[0]
    assert night.ended().kind == "stopped"
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert said.endswith("retrain: interrupted by SIGTERM; the next run continues [exit 143]\n")
        assert night.state() == night.before
    (night.folder / "endless").unlink()
    assert retrain.main([]) == 0
    with suppress(psutil.NoSuchProcess):  # or nobody has asked how it ended
        assert psutil.Process(int(begun.read_text())).status() == psutil.STATUS_ZOMBIE
    assert (night.folder / "continued").exists()
    assert night.state() == night.before


def test_a_signal_before_a_command_starts_none(tmp_path: Path):
    with processes.CommandSequence(tmp_path / "lock", "test", 0.0) as lock:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(processes.Interrupted):
            lock.call(["touch", "begun"], tmp_path)
    assert not (tmp_path / "begun").exists()
