"""checkout -> commit, branch, changes and user, as the tags of a run."""

import getpass
import os
from pathlib import Path

from pipeline.runtime.git import NONE, UNKNOWN, commit, git, has_changes
from pipeline.runtime.redaction import shown

# Tracked files that the pipeline itself writes: they make no checkout dirty.
WRITTEN = ("dvc.lock", "reports")


def code_tags(root: Path) -> dict[str, str]:
    """Returns commit, branch, repository and user, under the names that MLflow's UI shows too.

    What git refuses to tell is `unknown`, and its reason is said.
    """
    revision = commit(root)
    dirty = is_dirty(root)
    tags = {
        "git.commit": revision,
        "git.dirty": UNKNOWN if dirty is None else str(dirty).lower(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": "" if revision in (NONE, UNKNOWN) else revision,
        "mlflow.source.git.branch": git(root, "branch", "--show-current"),
        "mlflow.source.git.repoURL": shown(git(root, "config", "remote.origin.url")),
        "mlflow.user": user(),
    }
    return {name: text for name, text in tags.items() if text}


def is_dirty(root: Path) -> bool | None:
    """Returns whether tracked files changed, those aside that the pipeline itself writes; None
    where git does not tell.
    """
    return has_changes(root, [":/", *(f":(top,exclude){path}" for path in WRITTEN)])


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def checkout_of(root: Path) -> Path:
    """Returns the checkout in which DVC was started; `root` is a copy of it in an experiment."""
    return Path(os.environ.get("DVC_ROOT") or root)
