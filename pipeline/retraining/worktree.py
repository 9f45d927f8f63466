"""a commit -> a git worktree to retrain it in, so that the checkout is never modified, and branches
of the result.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.dvc.local_config import LOCAL
from pipeline.runtime import known_secrets
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.git import git_environment
from pipeline.runtime.processes import CommandSequence
from pipeline.tracking.run import journals
from pipeline.tracking.store import resolve_uri
from quatrain.errors import ConfigError

# Without hooks: those of `dvc install` would check out and push in between.
GIT = ("git", "-c", "core.hooksPath=/dev/null")
DVC = (sys.executable, "-m", "dvc")
IDENTITY = {"name": "quatrain retraining", "email": "retraining@localhost"}
SHOWN_CHANGES = 5


class Worktree(NamedTuple):
    root: Path
    path: Path
    commands: CommandSequence

    def git(self, *arguments: str, **variables: str) -> str:
        """Returns what a git command in the worktree prints.

        Raises:
            CommandFailed: its exit code is not 0.
        """
        return git(self.commands, self.path, *arguments, **variables)

    def python(self, *arguments: str) -> int:
        """Returns the exit code of `python -m ...` with the worktree's code and the checkout's
        tracking store.
        """
        environment = git_environment() | {
            "PYTHONPATH": f"{self.path / 'src'}{os.pathsep}{self.path}",
            "MLFLOW_TRACKING_URI": resolve_uri(self.root),
        }
        environment.pop("DVC_ROOT", None)
        return self.commands.call([sys.executable, "-m", *arguments], self.path, environment)


def git(commands: CommandSequence, folder: Path, *arguments: str, **variables: str) -> str:
    """Returns what a git command prints.

    Raises:
        CommandFailed: its exit code is not 0.
    """
    return commands.read([*GIT, *arguments], folder, git_environment(folder) | variables)


def git_succeeds(commands: CommandSequence, folder: Path, *arguments: str) -> bool:
    return commands.succeeds([*GIT, *arguments], folder, git_environment(folder))


def clean_commit(commands: CommandSequence, root: Path) -> str:
    """Returns the commit that is checked out.

    Raises:
        ConfigError: there is none, or files differ from it.
    """
    try:
        commit = git(commands, root, "rev-parse", "--verify", "HEAD^{commit}")
        status = git(commands, root, "status", "--porcelain")
    except (CommandFailed, FileNotFoundError) as error:
        raise ConfigError(
            f"a retraining starts from a commit; run it in a git checkout that has one ({error})"
        ) from None
    changed = [line[3:] for line in status.splitlines()]
    if changed:
        names = ", ".join(changed[:SHOWN_CHANGES])
        if len(changed) > SHOWN_CHANGES:
            names += f" and {len(changed) - SHOWN_CHANGES} more"
        raise ConfigError(
            "a retraining starts from a commit, "
            f"but {names} differ from it; commit or stash them first"
        )
    return commit


def prepare(commands: CommandSequence, root: Path, commit: str) -> Worktree:
    """Makes a git worktree below .state that shares the checkout's history, cache and journals.

    The worktree of an interrupted retraining is used again, for its checkpoints.
    """
    path = root / ".state" / "retrain" / "work"
    is_prepared = (path / ".state" / "journal").is_symlink()
    if is_prepared and git_succeeds(commands, path, "rev-parse", "--is-inside-work-tree"):
        # Left by a killed git; the lock on retraining is held, so that no other git is at work
        # here.
        lock = path / git(commands, path, "rev-parse", "--git-path", "index.lock")
        lock.unlink(missing_ok=True)
        git(commands, path, "checkout", "--quiet", "--force", "--detach", commit)
        git(commands, path, "clean", "--quiet", "--force", "-d")
        share_dvc(commands, root, path)
    else:
        remove(commands, root, path)
        git(commands, root, "worktree", "add", "--quiet", "--detach", str(path), commit)
        share_dvc(commands, root, path)
        share_journals(root, path)
    return Worktree(root, path, commands)


def share_journals(root: Path, work: Path) -> None:
    """Links the journals of a workspace to the checkout's, for `make sync` there."""
    link = work / ".state" / "journal"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        journals(root).mkdir(parents=True, exist_ok=True)
        link.symlink_to(journals(root).absolute())


def remove(commands: CommandSequence, root: Path, path: Path) -> None:
    """Removes the worktree in any state; cache and journals are only linked there and stay."""
    git_succeeds(commands, root, "worktree", "unlock", str(path))
    if path.exists():
        shutil.rmtree(path)
    git(commands, root, "worktree", "prune")


def share_dvc(commands: CommandSequence, root: Path, path: Path) -> None:
    """Gives DVC in the worktree the checkout's cache, remotes and local settings."""
    local_config = root / LOCAL
    (path / LOCAL).unlink(missing_ok=True)
    if local_config.exists():
        shutil.copy(local_config, path / LOCAL)
    cache = root / commands.read([*DVC, "cache", "dir"], root)
    cache.mkdir(parents=True, exist_ok=True)
    (path / ".dvc" / "cache").unlink(missing_ok=True)
    (path / ".dvc" / "cache").symlink_to(cache.absolute())
    # Settings differ where they are paths relative to the config file.
    for line in sorted(dvc_settings(commands, root) - dvc_settings(commands, path)):
        name, _, value = line.partition("=")
        commands.read([*DVC, "config", "--quiet", "--local", name, value], path)


def dvc_settings(commands: CommandSequence, folder: Path) -> set[str]:
    settings = set(commands.read([*DVC, "config", "--list"], folder).splitlines())
    known_secrets.learn_settings(settings)
    return settings


def has_dvc_remote(worktree: Worktree) -> bool:
    return any(
        line.startswith("core.remote=") for line in dvc_settings(worktree.commands, worktree.path)
    )


def git_remote(commands: CommandSequence, root: Path) -> str | None:
    """Returns the remote of the current branch, else `origin`, else None."""
    remotes = git(commands, root, "remote").splitlines()
    settings = git(commands, root, "config", "--list").splitlines()
    known_secrets.learn_settings(line for line in settings if line.startswith("remote."))
    branch = git(commands, root, "branch", "--show-current")
    name = "origin"
    if branch:
        name = git(
            commands, root, "config", "--default", "origin", "--get", f"branch.{branch}.remote"
        )
    return name if name in remotes else None


def commits_behind(commands: CommandSequence, root: Path) -> int:
    """Returns how many commits the branch's upstream, as last fetched, is ahead."""
    has_upstream = git_succeeds(commands, root, "rev-parse", "--verify", "--quiet", "@{upstream}")
    command = ("rev-list", "--count", "HEAD..@{upstream}")
    return int(git(commands, root, *command)) if has_upstream else 0


def commit_of(worktree: Worktree, remote: str | None, branch: str) -> str | None:
    """Returns the commit of a branch at the remote, or of a local one if `remote` is None; None
    without a branch.

    Raises:
        CommandFailed: the remote does not answer.
    """
    ref = f"refs/heads/{branch}"
    command = (
        ("for-each-ref", "--format=%(objectname)") if remote is None else ("ls-remote", remote)
    )
    return worktree.git(*command, ref).partition("\t")[0] or None


def commit(worktree: Worktree, paths: Sequence[str], message: str) -> str:
    """Commits what changed below these paths; returns the commit."""
    worktree.git("add", "--", *paths)
    options = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message)
    worktree.git(*identity_options(worktree), *options)
    return worktree.git("rev-parse", "HEAD")


def commit_without_parent(worktree: Worktree, folder: Path, name: str, message: str) -> str:
    """Returns a commit without parents that holds `folder/name`, ignored files too."""
    path = worktree.path / ".state" / "pictures.index"
    path.unlink(missing_ok=True)
    index = {"GIT_INDEX_FILE": str(path)}
    # Files may be DVC's links into its cache, which git would store as links.
    plain = worktree.path / ".state" / "pictures"
    shutil.rmtree(plain, ignore_errors=True)
    shutil.copytree(folder / name, plain / name)
    worktree.git("--work-tree", str(plain), "add", "--force", "--", str(plain / name), **index)
    tree = worktree.git("write-tree", **index)
    command = ("commit-tree", "--no-gpg-sign", "-m", message, tree)
    return worktree.git(*identity_options(worktree), *command)


def identity_options(worktree: Worktree) -> list[str]:
    options = []
    for key, value in IDENTITY.items():
        name = f"user.{key}"
        if not git_succeeds(worktree.commands, worktree.path, "config", "--get", name):
            options += ["-c", f"{name}={value}"]
    return options
