"""a git command -> what it prints, in the repository of its folder, or why git refuses it."""

import getpass
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pipeline.runtime import console
from pipeline.runtime.errors import CommandFailed

# Variables of a calling git (a hook, an alias) that would point ours at another repository.
REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
)
# How git says that there is no repository or no commit; that it refuses to tell is another matter.
ABSENT = ("not a git repository (or any", "ambiguous argument 'HEAD'")
# What shapes scores, and what the pipeline itself writes of what git tracks.
CODE = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")
WRITTEN = ("dvc.lock", "reports")
# A commit where there is no repository, or none in it; and where git refuses to tell.
NONE, UNKNOWN = "none", "unknown"


def git_environment() -> dict[str, str]:
    """Returns the variables of a command that works in the repository of its folder, and never asks
    for a password.
    """
    variables = {name: value for name, value in os.environ.items() if name not in REPOSITORY}
    return variables | {"GIT_TERMINAL_PROMPT": "0"}


def output(root: Path, *arguments: str) -> bytes:
    """Returns what a git command prints.

    Raises:
        CommandFailed: its exit code is not 0, or there is no git; the message is git's reason.
    """
    environment = git_environment() | {"LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *arguments], cwd=root, env=environment, capture_output=True)
    except OSError as error:
        raise CommandFailed(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = filter(None, map(str.strip, done.stderr.decode(errors="replace").splitlines()))
        said = "; ".join(line for line in lines if not line.startswith("hint:"))
        raise CommandFailed(console.redact(said) or f"exit code {done.returncode}")
    return done.stdout


def git(root: Path, *arguments: str) -> str:
    """Returns what a git command prints, as stripped text; empty if it fails."""
    try:
        return output(root, *arguments).decode(errors="replace").strip()
    except CommandFailed:
        return ""


def commit(root: Path) -> str:
    """Returns the commit that is checked out, NONE or UNKNOWN."""
    try:
        return output(root, "rev-parse", "HEAD").decode().strip()
    except CommandFailed as error:
        if any(words in str(error) for words in ABSENT):
            return NONE
        _tell(root, str(error))
        return UNKNOWN


def has_changes(root: Path, paths: Sequence[str], untracked: str = "no") -> bool | None:
    """Returns whether files of these paths differ from the commit; None where git does not tell.

    untracked: as `git status` has it.
    """
    status = ("status", "--porcelain", f"--untracked-files={untracked}")
    try:
        return bool(output(root, *status, "--", *paths))
    except CommandFailed:
        return None


def revision(root: Path, code: Sequence[str]) -> str:
    """Returns the first 12 digits of the commit, and whether files of `code` differ from it."""
    full = commit(root)
    if full in (NONE, UNKNOWN):
        return full
    suffix = {True: "+changes", False: "", None: "+unknown"}
    return full[:12] + suffix[has_changes(root, code, untracked="normal")]


def user() -> str:
    """Returns the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


@cache
def _tell(root: Path, reason: str) -> None:
    """Says git's reason, once in a process."""
    console.info(f"git does not tell commit and changes of {root}, which are unknown: {reason}")
