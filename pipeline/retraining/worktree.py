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
AUTHOR = ("-c", "user.name=quatrain retraining", "-c", "user.email=retraining@localhost")


class Worktree(NamedTuple):
    """Holds a git worktree below the checkout; what runs in it inherits the lock."""

    root: Path
    path: Path
    lock: int

    def git(self, *arguments: str) -> str:
        """Returns what a git command in the worktree prints.

        Raises:
            CommandFailed: its exit code is not 0.
        """
        return run_git(self.path, *arguments)

    def call(self, *arguments: str) -> int:
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
                pass_fds=(self.lock,),
                preexec_fn=parent_death_signal(),  # safe: there is no other thread
            )
        )
        if code - 128 in ENDING:
            raise Interrupted(code - 128)
        return code

    def commit(self, message: str, *paths: str) -> None:
        self.git("add", "--", *paths)
        options = ("--quiet", "--no-verify", "--no-gpg-sign", "--message", message)
        self.git(*AUTHOR, "commit", *options)


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
        ConfigError: there is none, or files differ from it.
    """
    start = "a retraining starts from a commit"
    try:
        commit = run_git(root, "rev-parse", "--verify", "HEAD^{commit}")
        changes = run_git(root, "status", "--porcelain").splitlines()
    except CommandFailed as error:
        raise ConfigError(f"{start}; run it in a git checkout that has one ({error})") from None
    if changes:
        names = ", ".join(line[3:] for line in changes)
        raise ConfigError(f"{start}, but {names} differ from it; commit or stash them first")
    return commit


def push_remote(root: Path) -> str:
    """Returns the remote of the current branch's upstream, else `origin`.

    Raises:
        ConfigError: there is no such remote.
        CommandFailed: it does not answer.
    """
    upstream = git.git(root, "rev-parse", "--abbrev-ref", "@{upstream}")
    remote = upstream.partition("/")[0] or "origin"
    if remote not in run_git(root, "remote").splitlines():
        raise ConfigError("--push needs a git remote; `git remote add origin URL` names one")
    run_git(root, "ls-remote", "--quiet", remote, "HEAD")
    return remote


def prepare(root: Path, path: Path, lock: int, commit: str, preset: str) -> Worktree:
    """Makes a worktree that shares the checkout's history, DVC settings, cache and outboxes.

    That of an interrupted retraining is used again, for its checkpoints.
    """
    copy = Worktree(root, path.absolute(), lock)
    # git in a folder that is no worktree would work on the checkout around it.
    if git.git(path, "rev-parse", "--show-toplevel") == str(path.resolve()):
        for name in ("index.lock", "HEAD.lock"):  # left by a killed git
            (path / copy.git("rev-parse", "--git-path", name)).unlink(missing_ok=True)
        copy.git("checkout", "--quiet", "--force", "--detach", commit)
        copy.git("clean", "--quiet", "--force", "-d")
    else:
        remove(copy)
        run_git(root, "worktree", "add", "--quiet", "--detach", str(copy.path), commit)
    share_settings(root, copy.path)
    for work in {copy.path, workspace_of(copy.path, preset)}:
        share_outboxes(root, work)
    return copy


def share_outboxes(root: Path, work: Path) -> None:
    """Links the outboxes of a workspace to the checkout's, where `make sync` finds them."""
    link = work / ".state" / "outbox"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        outboxes(root).mkdir(parents=True, exist_ok=True)
        link.symlink_to(outboxes(root).absolute())


def remove(copy: Worktree) -> None:
    """Removes the worktree in any state; the outboxes are only linked there and stay."""
    if copy.path.exists():
        shutil.rmtree(copy.path)
    git.git(copy.root, "worktree", "unlock", str(copy.path))  # as a killed `worktree add` left it
    run_git(copy.root, "worktree", "prune")
