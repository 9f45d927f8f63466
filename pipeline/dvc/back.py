"""the last commit -> its params, lock, reports, data and models in the working folder again."""

import datetime
from pathlib import Path

from pipeline.dvc import repro
from pipeline.dvc.workspace import alone, environment
from pipeline.runtime import git
from pipeline.runtime.errors import CommandFailed
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably

KEPT = Path(".state", "back")
# Options by which `git apply` takes what `git diff` prints.
PLAIN = (
    *("--binary", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)


def back(root: Path, jobs: int) -> int:
    """Restores params, lock and reports of the last commit, and with them data and models from
    DVC's cache. A model that was here and is in no cache is trained again, from its checkpoints if
    they are left. Returns the exit code of that.

    What is dropped stays in a patch below .state, and in DVC's cache.

    Raises:
        LockHeld: a run is at work.
        CommandFailed: the commit has no lock, or git or dvc refuses.
    """
    here = [model for model in MODELS if _was_here(root, model)]
    with alone(root, "default"):
        commit = git.output(root, "rev-parse", "--short", "HEAD").decode().strip()
        listed = git.output(root, "ls-tree", "--name-only", "HEAD", *repro.RESULTS)
        names = listed.decode().split()
        if "dvc.lock" not in names:
            raise CommandFailed(f"commit {commit} has no dvc.lock to go back to; commit one first")
        keep(root)
        (root / "reports" / "report.html").unlink(missing_ok=True)  # which DVC may not have cached
        git.output(root, "restore", "--source=HEAD", "--staged", "--worktree", "--", *names)
        # Without --force DVC removes nothing that is in no cache.
        if repro.dvc(root, environment(root, root), "checkout", "--quiet", "--allow-missing"):
            raise CommandFailed(
                "`dvc checkout` would remove what is in no cache, which the lines above name; move "
                "it elsewhere, or `dvc checkout --force`"
            )
    print(f"back: {', '.join(names)} are those of commit {commit}")
    if git.has_changes(root, (*git.CODE, "baselines"), untracked="normal"):
        print(
            "back: code, inputs, presets or baselines still differ; `git status` names them, "
            "`git restore FILE` drops a change"
        )
    missing = [model for model in here if not (root / "models" / model).exists()]
    if not missing:
        if not (root / "reports" / "report.html").exists():
            repro.write_report(root, environment(root, root))
        return 0
    print(f"back: no cache here has the commit's {', '.join(missing)}: made again", flush=True)
    return repro.run(root, "default", missing, jobs)


def _was_here(root: Path, model: str) -> bool:
    """Returns whether a model was trained here, also if an interrupted `back` has removed it."""
    return (root / "models" / model).exists() or (root / ".state" / f"train@{model}").exists()


def keep(root: Path) -> None:
    """Stores what differs from the commit as a patch, whatever the user's settings of git."""
    patch = git.output(root, "diff", *PLAIN, "HEAD", "--", *repro.RESULTS)
    if patch:
        path = KEPT / f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}.patch"
        write_durably(root / path, patch)
        print(f"back: what is dropped: `git apply {path} && make repro` restores it")
