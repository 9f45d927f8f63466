"""a checkout and a preset -> the folder that DVC runs the preset in, and the environment of its
processes.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psutil

from pipeline.dvc.local_config import share_settings
from pipeline.judging.scores import NotFresh
from pipeline.runtime import git
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.hints import repro_hint
from pipeline.runtime.processes import folder_lock
from pipeline.storage.params_file import workspace_of, write_raw
from pipeline.storage.run_key import inputs_of
from pipeline.tracking.store import resolve_uri
from quatrain.errors import ConfigError
from quatrain.presets import read_raw

# What runs of a preset write; everything else in its workspace, except DVC's own files, is a copy.
PRODUCED = {"data", "models", "reports", ".state", ".mlflow", "dvc.lock", "params.yaml"}
# How long a command that is about to end may take.
PATIENCE_SECONDS = 2.0
GIT_LIST = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
# Names what processes of DVC work on; DVC's other locks are the kernel's, and end with a process.
RWLOCK = Path(".dvc", "tmp", "rwlock")


def alone(root: Path, preset: str) -> AbstractContextManager[None]:
    """Locks a preset's results: one command at a time runs stages or moves baselines.

    DVC's own lock would end the second one in the middle of its work, with DVC's exit code.

    Raises:
        LockHeld: another process is at work.
    """
    locks = workspace_of(root, preset) / ".state" / "locks"
    return folder_lock(locks / "repro", PATIENCE_SECONDS)


def prepare_workspace(root: Path, preset: str) -> Path:
    """Updates the preset's copy: the files that git lists, all inputs (large ones may be in DVC,
    and ignored by git), and params.yaml with the preset's values.

    The copy has its own dvc.lock, outs and .state, and shares DVC's settings and cache; the next
    run continues one that was killed.

    Raises:
        DataError: DVC cannot read its settings.
        ConfigError: there is no such preset, or git cannot list the files.
    """
    work = workspace_of(root, preset)
    if work == root:
        return root
    params = read_raw(root, preset)
    listed = files_of_git(root) | inputs_of(root).keys()
    names = {name for name in listed if Path(name).parts[0] not in PRODUCED}
    for copy in copies_in(work):
        if str(copy.relative_to(work)) not in names:
            copy.unlink()
    for name in sorted(names):
        copy_if_changed(root / name, work / name)
    write_raw(work / "params.yaml", params)
    share_settings(root, work)
    return work


def judged_workspace(root: Path, preset: str, models: Sequence[str]) -> Path:
    """Returns the folder of a preset's results, whose inputs are a copy of the checkout's.

    Raises:
        NotFresh: an input of these models has changed in the checkout.
    """
    work = workspace_of(root, preset)
    if work != root and work.joinpath("inputs").exists():
        for name in sorted(inputs_of(root, *models).keys() | inputs_of(work, *models).keys()):
            if content(root / name) != content(work / name):
                reason = f"{name} changed after preset {preset} was run"
                raise NotFresh("stale", reason, repro_hint(preset, *models))
    return work


def copies_in(work: Path) -> list[Path]:
    """Returns the files of a workspace that runs in it do not write."""
    return [
        path
        for path in work.rglob("*")
        if path.relative_to(work).parts[0] not in {*PRODUCED, ".dvc"}
        and path.is_file()
        and "__pycache__" not in path.parts
    ]


def files_of_git(root: Path) -> set[str]:
    """Returns files that are committed, or that `git add .` would add."""
    try:
        listing = git.output(root, *GIT_LIST)
    except CommandFailed as error:
        raise ConfigError(
            "a preset runs in a copy of what git lists; run from a git checkout, with git "
            f"({error})"
        ) from None
    return {name for name in os.fsdecode(listing).split("\0") if name}


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def copy_if_changed(source: Path, target: Path) -> None:
    """Copies or removes a file; an equal file keeps its time, which saves DVC a hash.

    A copy that a kill or a full disk cut short differs, and is made anew by the next run.
    """
    if not source.is_file():
        target.unlink(missing_ok=True)
    elif content(source) != content(target):
        if target.is_dir():  # a folder that is a file now
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def drop_rwlock(work: Path) -> None:
    """Removes .dvc/tmp/rwlock, unless a dvc is at work in the folder.

    DVC refuses one that a kill left half-written, and one of a killed dvc whose number another
    process has by now, which in a container happens at once.
    """
    place = work.resolve()
    for process in psutil.process_iter(["cmdline", "cwd"]):
        names = {Path(word).name for word in process.info["cmdline"] or ()}
        folder = process.info["cwd"]
        if names & {"dvc", "pipeline.dvc.brief"} and folder and Path(folder).is_relative_to(place):
            return
    (work / RWLOCK).unlink(missing_ok=True)


def environment(root: Path, work: Path) -> dict[str, str]:
    """Returns the variables of dvc's processes: this interpreter, the workspace's code, the
    checkout's tracking.
    """
    uri = resolve_uri(root.absolute())  # first: it moves a password into variables
    return git.git_environment() | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "MLFLOW_TRACKING_URI": uri,
        "PYTHONPATH": str(work.absolute() / "src"),
    }
