"""a commit -> a git worktree to retrain it in, so that the checkout is never modified."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from pipeline.dvc.local_config import share_settings
from pipeline.dvc.workspace import environment
from pipeline.runtime import git
from pipeline.runtime.errors import CommandFailed, Interrupted
from pipeline.runtime.processes import ENDING, parent_death_signal, wait_for_child
from pipeline.storage.params_file import workspace_of
from pipeline.tracking.run import outboxes
from quatrain.errors import ConfigError

# Without hooks: those of `dvc install` would check out and push in between.
OPTIONS = ("-c", "core.hooksPath=/dev/null")
# Folders of .state that are the checkout's: what is not delivered yet, and trials that have ended.
SHARED = ("outbox", "groups", "trials")


class Worktree(NamedTuple):
    """Holds a git worktree below the checkout; what runs in it inherits the lock."""

    root: Path
    path: Path
    lock: int

    def git(self, *arguments: str) -> str:
        """Returns what a git command in the worktree prints; raises CommandFailed if it fails."""
        return run_git(self.path, *arguments)

    def call(self, *arguments: str, stdout: int | None = None) -> int:
        """Returns the exit code of `python -m ...` with the worktree's code and the checkout's
        tracking store.

        Raises:
            Interrupted: a signal ended it.
        """
        code = wait_for_child(
            subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.path,
                env=environment(self.root, self.path),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                pass_fds=(self.lock,),
                preexec_fn=parent_death_signal(),  # safe: there is no other thread
            )
        )
        if code - 128 in ENDING:
            raise Interrupted(code - 128)
        return code


def run_git(folder: Path, *arguments: str) -> str:
    """Returns what a git command prints.

    Raises:
        CommandFailed: its exit code is not 0.
    """
    try:
        return git.output(folder, *OPTIONS, *arguments).decode(errors="replace").rstrip()
    except CommandFailed as error:
        raise CommandFailed(f"`git {' '.join(arguments)}` failed: {error}") from None


def clean_commit(root: Path) -> str:
    """Returns the commit that is checked out.

    Raises:
        CommandFailed: there is none.
        ConfigError: files differ from it.
    """
    commit = run_git(root, "rev-parse", "--verify", "HEAD^{commit}")
    changes = run_git(root, "status", "--porcelain").splitlines()
    if changes:
        names = ", ".join(line[3:] for line in changes)
        raise ConfigError(
            f"a retraining starts from a commit, but {names} differ from it; commit them, or use "
            "`git stash -u`"
        )
    return commit


def push_remote(root: Path) -> str:
    """Returns the remote of the current branch's upstream, else `origin`.

    Raises:
        CommandFailed: there is no such remote, or it does not answer.
    """
    branch = git.git(root, "branch", "--show-current")
    remote = git.git(root, "config", f"branch.{branch}.remote").strip(".") or "origin"
    run_git(root, "ls-remote", "--quiet", remote, "HEAD")
    return remote


def prepare(copy: Worktree, commit: str, preset: str) -> None:
    """Makes the worktree anew. It shares the checkout's history, DVC settings, cache, outboxes and
    trials, and has the checkpoints of an interrupted retraining.
    """
    if copy.path.exists():
        shutil.rmtree(copy.path)
    # Forced twice: a killed git may have left it locked.
    add = ("worktree", "add", "--quiet", "--force", "--force", "--detach")
    run_git(copy.root, *add, str(copy.path), commit)
    share_settings(copy.root, copy.path)
    for name in SHARED:
        link(state_of(copy) / name, outboxes(copy.root).with_name(name))
    for work in {copy.path, workspace_of(copy.path, preset)}:
        link(work / ".state", state_of(copy))


def remove(copy: Worktree) -> None:
    """Removes the worktree and its checkpoints; what is only linked there stays."""
    run_git(copy.root, "worktree", "remove", "--force", str(copy.path))
    shutil.rmtree(state_of(copy))


def state_of(copy: Worktree) -> Path:
    """Returns the folder that is the worktree's .state, and outlives it."""
    return copy.path.with_name("state")


def link(path: Path, folder: Path) -> None:
    """Links a path to a folder, which is made if it is missing; an older link may lead to where
    the checkout was before it was moved or copied.
    """
    for each in (path.parent, folder):
        each.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(folder.absolute())
