"""A retraining's remotes, its working copy, and what is left when it is killed."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.commands import retrain
from pipeline.runtime import processes
from tests.pipeline.recorded_runs import until
from tests.pipeline.retrained_checkout import Night
from tests.pipeline.small_checkout import git

Capture = pytest.CaptureFixture[str]
# A retraining has one thread; pytest may have loaded jax, which warns of any fork then.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


# Remotes.


def test_pushing_sends_outs_first_and_then_both_branches(
    night: Night, remote: Path, capsys: Capture
):
    night.set("settings", "core.remote=storage\nremote.storage.url=/somewhere\n")
    night.scores("iqn", return_mean=140.0)
    assert retrain.main(["--push"]) == 0
    assert night.calls() == [
        "dvc fetch --quiet --run-cache",
        "repro --preset default",
        "promote --preset default --keep-champion iqn",
        "dvc push --quiet --run-cache",
    ]
    assert night.branches(remote) == night.branches()
    assert len(night.branches()) == 2
    assert (
        capsys.readouterr().out
        == f"retrain: proposed: branch {night.proposed()}, pushed to origin\n"
    )
    assert git(remote, "for-each-ref", "refs/heads/main") == ""


def test_a_result_that_was_proposed_here_alone_is_sent_later(night: Night, remote: Path):
    night.scores("iqn", return_mean=140.0)
    assert retrain.main([]) == 0
    commit = git(night.root, "rev-parse", night.proposed())
    assert night.branches(remote) == []
    night.set("date", "2026-02-04")
    assert retrain.main(["--push"]) == 0
    assert git(remote, "rev-parse", night.proposed()) == commit


def test_a_dvc_remote_that_refuses_leaves_no_branch_anywhere(
    night: Night, remote: Path, capsys: Capture
):
    night.set("settings", "core.remote=storage\n")
    night.set("refused", "fetch push")
    night.lock("new outs\n")
    assert retrain.main(["--push"]) == 5
    out, err = capsys.readouterr()
    assert "retrain: the DVC remote did not give everything; what is missing is computed\n" in out
    assert err == (
        "retrain: the DVC remote did not take the outs, so no branch was pushed; the lines "
        "above say why [exit 5]\n"
    )
    assert night.branches() == night.branches(remote) == []
    assert night.state() == night.before
    night.set("refused", "")
    assert retrain.main(["--push"]) == 0
    assert night.branches(remote) == night.branches() != []


def test_pushing_needs_a_remote(night: Night, capsys: Capture):
    assert retrain.main(["--push"]) == 2
    why = "retrain: --push needs a git remote; `git remote add origin URL` names one [exit 2]\n"
    assert capsys.readouterr().err == why
    assert night.calls() == []


@pytest.mark.usefixtures("night")
def test_a_remote_that_is_away_stops_only_who_pushes(remote: Path, capsys: Capture):
    remote.rename(remote.with_name("away"))
    assert retrain.main([]) == 0
    assert (
        "retrain: goes on without origin: `git -c core.hooksPath=/dev/null fetch"
        in capsys.readouterr().out
    )
    assert retrain.main(["--push"]) == 5
    assert capsys.readouterr().err.startswith(
        "retrain: `git -c core.hooksPath=/dev/null fetch --quiet origin` failed"
    )


def test_commits_that_were_not_pulled_are_told_of(night: Night, remote: Path, capsys: Capture):
    git(night.root, "push", "-q", "-u", "origin", "main")
    other = remote.with_name("other")
    git(other.parent, "clone", "-q", "-b", "main", str(remote), str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "newer")
    git(other, "push", "-q")
    assert retrain.main([]) == 0
    printed = "retrain: the upstream branch is ahead by 1; `git pull` first to retrain that\n"
    assert capsys.readouterr().out.startswith(printed)
    assert "newer" not in git(night.root, "log", "main")


# The copy.


def test_hooks_of_the_checkout_are_not_run_and_nobody_needs_to_be_known_to_git(
    night: Night, monkeypatch: pytest.MonkeyPatch
):
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


def test_cache_and_journals_are_the_checkouts_and_stay(night: Night):
    for name in (".dvc/cache/files", ".state/journal/train@allo-1"):
        (night.root / name).mkdir(parents=True)
        (night.root / name / "kept").write_text("kept")
    night.set("exit", "255")
    assert retrain.main([]) == 255
    work = night.root / ".state" / "retrain" / "work"
    assert (work / ".dvc" / "cache" / "files" / "kept").read_text() == "kept"
    assert (work / ".state" / "journal" / "train@allo-1" / "kept").read_text() == "kept"
    night.set("exit", "0")
    assert retrain.main([]) == 0
    assert not work.exists()
    assert (night.root / ".dvc" / "cache" / "files" / "kept").exists()
    assert (night.root / ".state" / "journal" / "train@allo-1" / "kept").exists()


def test_what_a_preset_records_is_kept_with_the_checkouts_journals(night: Night):
    night.set("exit", "255")
    assert retrain.main(["--preset", "smoke"]) == 255
    journals = (
        night.root / ".state" / "retrain" / "work" / ".presets" / "smoke" / ".state" / "journal"
    )
    assert journals.resolve() == night.root / ".state" / "journal"


def test_settings_of_dvc_that_git_does_not_know_travel(night: Night):
    (night.root / ".dvc" / "config.local").write_text("secrets\n")
    night.set("exit", "255")
    assert retrain.main([]) == 255
    copied = night.root / ".state" / "retrain" / "work" / ".dvc" / "config.local"
    assert copied.read_text() == "secrets\n"


@pytest.mark.parametrize("damage", ["half made", "locked", "killed git"])
def test_a_copy_that_a_killed_retraining_left_is_no_obstacle(night: Night, damage: str):
    work = night.root / ".state" / "retrain" / "work"
    night.set("exit", "255")
    assert retrain.main([]) == 255
    if damage == "half made":
        (work / ".state" / "journal").unlink()
    elif damage == "locked":
        git(night.root, "worktree", "lock", str(work))
        (work / ".git").unlink()
    else:
        (night.root / ".git" / "worktrees" / "work" / "index.lock").touch()
        (work / "dvc.lock").write_text("half")
        (work / "stray.py").write_text("stray")
    night.set("exit", "0")
    assert retrain.main([]) == 0
    assert night.ended().kind == "unchanged"
    assert night.state() == night.before


# Signals.


def test_sigterm_lets_the_run_save_and_the_next_one_continues(night: Night):
    night.set("endless")
    process = night.start()
    until((night.folder / "begun").exists)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 143
    assert said.endswith("retrain: interrupted by SIGTERM; the next run continues [exit 143]\n")
    assert night.state() == night.before
    assert night.ended().kind == "stopped"
    (night.folder / "endless").unlink()
    assert retrain.main([]) == 0
    assert (night.folder / "found").read_text() == "checkpoint"
    assert night.state() == night.before


def test_a_killed_retraining_takes_its_run_along_and_the_next_one_waits_for_that(night: Night):
    night.set("endless")
    process = night.start()
    until((night.folder / "begun").exists)
    until(lambda: (night.folder / "begun").read_text() != "")
    process.kill()
    process.communicate()
    (night.folder / "endless").unlink()
    assert retrain.main([]) == 0
    child = int((night.folder / "begun").read_text())
    with suppress(psutil.NoSuchProcess):
        assert (
            psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        )  # which nobody has asked how it ended
    assert (night.folder / "found").read_text() == "checkpoint"
    assert night.state() == night.before


def test_a_signal_before_a_command_starts_none(night: Night):
    with processes.CommandSequence(night.folder / "lock", "test", 0.0) as lock:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(processes.Interrupted):
            lock.call(["touch", "begun"], night.folder)
    assert not (night.folder / "begun").exists()
