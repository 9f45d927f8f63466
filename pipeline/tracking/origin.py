"""checkout -> commit, branch, changes and user, as the tags of a run."""

import getpass
import os
import subprocess
from pathlib import Path

from pipeline.runtime.redaction import shown

# Tracked files that the pipeline itself writes: they make no checkout dirty.
WRITTEN = ("dvc.lock", "reports")


def code_tags(root: Path) -> dict[str, str]:
    """Returns commit, branch, repository and user, under the names that MLflow's UI shows too."""
    revision = commit(root)
    tags = {
        "git.commit": revision,
        "git.dirty": str(is_dirty(root)).lower(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": "" if revision == "none" else revision,
        "mlflow.source.git.branch": git(root, "branch", "--show-current"),
        "mlflow.source.git.repoURL": shown(git(root, "config", "remote.origin.url")),
        "mlflow.user": user(),
    }
    return {name: text for name, text in tags.items() if text}


def is_dirty(root: Path) -> bool:
    """Returns whether tracked files changed, those aside that the pipeline itself writes."""
    ours = [f":(top,exclude){path}" for path in WRITTEN]
    return bool(git(root, "status", "--porcelain", "--untracked-files=no", "--", ":/", *ours))


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def commit(root: Path) -> str:
    return git(root, "rev-parse", "HEAD") or "none"


def git(root: Path, *arguments: str) -> str:
    """Returns the output of a git command; empty if it fails."""
    process = subprocess.run(
        ["git", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return process.stdout.strip() if process.returncode == 0 else ""


def checkout_of(root: Path) -> Path:
    """Returns the checkout in which DVC was started; `root` is a copy of it in an experiment."""
    return Path(os.environ.get("DVC_ROOT") or root)
