"""a commit -> a second working folder to retrain it in, so that nothing harms the first, and back as branches."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.runtime.errors import CommandFailed, ConfigError
from pipeline.runtime.processes import CommandSequence
from pipeline.tracking.run import journals
from pipeline.tracking.shipper import resolve_uri

GIT = ("git", "-c", "core.hooksPath=/dev/null")
"""Hooks are for persons: those of `dvc install` would check out and push in the midst of it."""
DVC = (sys.executable, "-m", "dvc")
IDENTITY = {"name": "quatrain retraining", "email": "retraining@localhost"}
"""Who commits where git knows nobody."""
REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""Variables by which a git hook that calls us would lead our git astray."""
TOLD = 5
"""How many changed files are named."""


class Copy(NamedTuple):
    """The checkout, the working folder made from its commit, and what runs commands in both."""

    root: Path
    path: Path
    commands: CommandSequence

    def git(self, *arguments: str, **variables: str) -> str:
        """What a git command in the copy prints.

        Raises:
            CommandFailed: it did not end well.
        """
        return git(self.commands, self.path, *arguments, **variables)

    def python(self, *arguments: str) -> int:
        """The exit code of `python -m ...` with the copy's code, recording where the checkout records."""
        given = quiet() | {
            "PYTHONPATH": f"{self.path / 'src'}{os.pathsep}{self.path}",
            "MLFLOW_TRACKING_URI": resolve_uri(self.root),
        }
        given.pop("DVC_ROOT", None)
        return self.commands.call([sys.executable, "-m", *arguments], self.path, given)


def quiet() -> dict[str, str]:
    """The environment, less what leads git elsewhere; nobody is there to be asked for a password."""
    return {name: value for name, value in os.environ.items() if name not in REPOSITORY} | {
        "GIT_TERMINAL_PROMPT": "0"
    }


def git(commands: CommandSequence, folder: Path, *arguments: str, **variables: str) -> str:
    """What a git command prints.

    Raises:
        CommandFailed: it did not end well.
    """
    return commands.read([*GIT, *arguments], folder, quiet() | only(folder) | variables)


def has(commands: CommandSequence, folder: Path, *arguments: str) -> bool:
    """Whether a git command ends well."""
    return commands.succeeds([*GIT, *arguments], folder, quiet() | only(folder))


def only(folder: Path) -> dict[str, str]:
    """Keep git from taking a repository further up: a copy that lost its own lies inside the checkout's."""
    return {"GIT_CEILING_DIRECTORIES": str(folder.absolute().parent)}


def clean_commit(commands: CommandSequence, root: Path) -> str:
    """The commit that is checked out.

    Raises:
        ConfigError: there is none, or files differ from it.
    """
    try:
        commit = git(commands, root, "rev-parse", "--verify", "HEAD^{commit}")
        changed = [line[3:] for line in git(commands, root, "status", "--porcelain").splitlines()]
    except (CommandFailed, FileNotFoundError):
        raise ConfigError(
            "a retraining starts from a commit; run it in a git checkout that has one"
        ) from None
    if changed:
        more = f" and {len(changed) - TOLD} more" if len(changed) > TOLD else ""
        named = ", ".join(changed[:TOLD]) + more
        raise ConfigError(
            f"a retraining starts from a commit, but {named} differ from it; commit or stash them first"
        )
    return commit


def prepare(commands: CommandSequence, root: Path, commit: str) -> Copy:
    """A git worktree below .state that shares the checkout's history, cache and journals.

    One that an interrupted retraining left is used again, for its checkpoints.
    """
    path = root / ".state" / "retrain" / "work"
    ready = path / ".state" / "journal"
    if ready.is_symlink() and has(commands, path, "rev-parse", "--is-inside-work-tree"):
        lock = path / git(commands, path, "rev-parse", "--git-path", "index.lock")
        lock.unlink(
            missing_ok=True
        )  # of a killed git: whoever holds the retraining's lock is alone here
        git(commands, path, "checkout", "--quiet", "--force", "--detach", commit)
        git(commands, path, "clean", "--quiet", "--force", "-d")
    else:
        remove(commands, root, path)
        git(commands, root, "worktree", "add", "--quiet", "--detach", str(path), commit)
        share(commands, root, path)
        keep_journals(root, path)
    return Copy(root, path, commands)


def keep_journals(root: Path, work: Path) -> None:
    """Let what a workspace records outlive it: `make sync` in the checkout delivers what could not be sent."""
    link = work / ".state" / "journal"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        journals(root).mkdir(parents=True, exist_ok=True)
        link.symlink_to(journals(root).absolute())


def remove(commands: CommandSequence, root: Path, path: Path) -> None:
    """Take the copy away, whatever state it is in; cache and journals are linked, and stay."""
    has(commands, root, "worktree", "unlock", str(path))
    if path.exists():
        shutil.rmtree(path)
    git(commands, root, "worktree", "prune")


def share(commands: CommandSequence, root: Path, path: Path) -> None:
    """Let DVC in the copy use the checkout's cache and remotes, and its settings that git does not know."""
    if (root / ".dvc" / "config.local").exists():
        shutil.copy(root / ".dvc" / "config.local", path / ".dvc" / "config.local")
    cache = root / commands.read([*DVC, "cache", "dir"], root)
    cache.mkdir(parents=True, exist_ok=True)
    (path / ".dvc" / "cache").symlink_to(cache.absolute())
    for line in sorted(
        settings(commands, root) - settings(commands, path)
    ):  # paths relative to the config file
        name, _, value = line.partition("=")
        commands.read([*DVC, "config", "--quiet", "--local", name, value], path)


def settings(commands: CommandSequence, folder: Path) -> set[str]:
    """DVC's settings as NAME=VALUE, with paths made absolute."""
    return set(commands.read([*DVC, "config", "--list"], folder).splitlines())


def has_dvc_remote(copy: Copy) -> bool:
    """Whether `dvc push` knows where to."""
    return any(line.startswith("core.remote=") for line in settings(copy.commands, copy.path))


def git_remote(commands: CommandSequence, root: Path) -> str | None:
    """The remote of the branch at hand, else `origin`, else none."""
    known = git(commands, root, "remote").splitlines()
    branch = git(commands, root, "branch", "--show-current")
    own = f"branch.{branch}.remote"
    named = (
        git(commands, root, "config", "--default", "origin", "--get", own) if branch else "origin"
    )
    return named if named in known else None


def behind(commands: CommandSequence, root: Path) -> int:
    """How many commits the branch's upstream, as last fetched, is ahead."""
    if not has(commands, root, "rev-parse", "--verify", "--quiet", "@{upstream}"):
        return 0
    return int(git(commands, root, "rev-list", "--count", "HEAD..@{upstream}"))


def commit_of(copy: Copy, remote: str | None, branch: str) -> str | None:
    """The commit of a branch at the remote, or of a local one if `remote` is None; None where there is no such branch.

    Raises:
        CommandFailed: the remote does not answer.
    """
    where = f"refs/heads/{branch}"
    if remote is not None:
        return copy.git("ls-remote", remote, where).partition("\t")[0] or None
    return copy.git("for-each-ref", "--format=%(objectname)", where) or None


def commit(copy: Copy, paths: Sequence[str], message: str) -> str:
    """A commit of what changed below these paths, on top of the copy's."""
    copy.git("add", "--", *paths)
    copy.git(*identity(copy), "commit", "--quiet", "--no-verify", "--message", message)
    return copy.git("rev-parse", "HEAD")


def commit_alone(copy: Copy, folder: Path, name: str, message: str) -> str:
    """A commit without parents that holds `folder/name`, ignored files too."""
    index = {"GIT_INDEX_FILE": str(copy.path / ".state" / "pictures.index")}
    Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    copy.git("--work-tree", str(folder), "add", "--force", "--", str(folder / name), **index)
    tree = copy.git("write-tree", **index)
    return copy.git(*identity(copy), "commit-tree", "-m", message, tree)


def identity(copy: Copy) -> list[str]:
    """git options that name a committer where nobody is configured."""
    unknown = [
        key
        for key in IDENTITY
        if not has(copy.commands, copy.path, "config", "--get", f"user.{key}")
    ]
    return [part for key in unknown for part in ("-c", f"user.{key}={IDENTITY[key]}")]
