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


def back(root: Path, jobs: int) -> int:
    """Restores params, lock and reports of the last commit, and with them data and models from
    DVC's cache. A model that was here and is in no cache is trained again, from its checkpoints if
    they are left. Returns the exit code of that.

    What is dropped stays in a patch below .state, and in DVC's cache.

    Raises:
        LockHeld: a run is at work.
        CommandFailed: git or dvc refuses.
    """
    here = [model for model in MODELS if (root / "models" / model).exists()]
    with alone(root, "default"):
        commit = git.output(root, "rev-parse", "--short", "HEAD").decode().strip()
        committed = git.output(root, "ls-tree", "--name-only", "HEAD", *repro.RESULTS).decode()
        names = committed.split()
        keep(root, names)
        git.output(root, "checkout", "HEAD", "--", *names)
        options = ("checkout", "--quiet", "--force", "--allow-missing")
        if repro.dvc(root, environment(root, root), *options):
            raise CommandFailed("`dvc checkout` failed; the lines above say why")
    print(f"back: {', '.join(names)} are those of commit {commit}")
    if git.has_changes(root, git.CODE, untracked="normal"):
        print("back: code, inputs or presets differ from the commit; `git status` names them")
    missing = [model for model in here if not (root / "models" / model).exists()]
    if not missing:
        return 0
    print(f"back: no cache here has the commit's {', '.join(missing)}: made again", flush=True)
    return repro.run(root, "default", missing, jobs)


def keep(root: Path, names: list[str]) -> None:
    """Stores what differs from the commit as a patch."""
    patch = git.output(root, "diff", "--binary", "HEAD", "--", *names)
    if patch:
        path = KEPT / f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}.patch"
        write_durably(root / path, patch)
        print(f"back: what is dropped: `git apply {path} && dvc checkout` restores it")
