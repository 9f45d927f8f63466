"""a computation -> its key, the checkpoints to continue it from, and the lock that keeps a second one out."""

import ast
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from pipeline.storage.artifacts import (
    ArtifactError,
    digest_of,
    file_digest,
    folder_digest,
    load,
    save,
)
from pipeline.storage.atomic_write import crash_point

SLOTS = ("slot-0", "slot-1")
ARRAYS = "learner.safetensors"
POLL_SECONDS = 0.05


class Checkpoint(NamedTuple):
    """A learner's arrays after so many steps."""

    step: int
    arrays: dict[str, np.ndarray]


class Checkpoints:
    """Two slots in a folder of their own; the newest valid checkpoint is never written over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skipped: tuple[str, ...] = ()
        """Why slots were passed over by the last `latest`, a line each."""
        self._newest: str | None = None
        self._known = False

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that can be trusted; what was passed over is told in `skipped`."""
        found, skipped = {}, []
        for slot in SLOTS:
            if (self.folder / slot).exists():
                try:
                    found[slot] = _checkpoint(self.folder / slot)
                except ArtifactError as error:
                    skipped.append(str(error))
        self.skipped = tuple(skipped)
        self._newest = max(found, key=lambda slot: found[slot].step, default=None)
        self._known = True
        return found[self._newest] if self._newest else None

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write into the slot that does not hold the newest valid checkpoint.

        Raises:
            ArtifactError: an array is not finite or not of a storable dtype.
            OSError: e.g. the disk is full; both slots are as before.
        """
        if not self._known:
            self.latest()
        slot = SLOTS[1] if self._newest == SLOTS[0] else SLOTS[0]
        save(self.folder / slot, {ARRAYS: arrays}, {"step": step})
        self._newest = slot

    def clear(self) -> None:
        """Remove the folder, if there is one."""
        if self.folder.exists():
            crash_point(shutil.rmtree, self.folder)
        self._newest, self._known = None, True


def _checkpoint(slot: Path) -> Checkpoint:
    contents, info, _ = load(slot)
    return Checkpoint(info["step"], contents[ARRAYS])


def run_key(
    stage: str,
    params: Mapping[str, Any],
    code: Iterable[Path],
    inputs: Iterable[Path | str],
    settings: Mapping[str, Any],
) -> str:
    """Names a computation by all that its result depends on; a checkpoint of another key is never continued.

    `code`: files, and folders of *.py files, by name relative to the working folder. `inputs`: artifact
    folders, files or digests. `settings`: device, threads, versions of libraries.

    Raises:
        ArtifactError: a file of `code` or `inputs` cannot be read.
    """
    files = [file for path in code for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return digest_of(
        {
            "stage": stage,
            "params": dict(params),
            "code": {os.path.relpath(file): file_digest(file) for file in files},
            "inputs": [_input_digest(item) for item in inputs],
            "settings": dict(settings),
        }
    )


def loaded_code(root: Path, model: str) -> list[Path]:
    """What shapes a model's outputs: its rooms that are imported by now and what they import; `root`'s writers.

    The rooms of other models, imported or not, are no part of it, nor is what serves this one: editing them must not
    restart this computation.
    """
    folder = f"quatrain.models.{model}."
    rooms = {name for name in sys.modules if name.startswith(folder)} - {f"{folder}serve"}
    files = {file_of(name) for name in imported_by(rooms)}
    return sorted(
        {*files, *(root / "pipeline" / "storage" / name for name in ("artifacts.py", "formats.py"))}
    )


def imported_by(modules: set[str]) -> set[str]:
    """These loaded modules of the inside and those that they import, directly or through others."""
    found: set[str] = set()
    ahead = modules
    while ahead:
        found |= ahead
        ahead = set().union(*(_imports(name) for name in ahead)) - found
    return found


def _imports(module: str) -> set[str]:
    """Modules of the inside that a loaded one imports."""
    named = set()
    for node in ast.walk(ast.parse(file_of(module).read_bytes())):
        if isinstance(node, ast.ImportFrom):
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return {name for name in named if name in sys.modules and name.startswith("quatrain.")}


def file_of(module: str) -> Path:
    """Where a loaded module lies."""
    return Path(str(sys.modules[module].__file__)).resolve()


def _input_digest(item: Path | str) -> str:
    if isinstance(item, str):
        return item
    return folder_digest(item) if item.is_dir() else file_digest(item)


class LockHeld(Exception):
    """Another process does the same work. Exit code 5."""


@contextmanager
def folder_lock(folder: Path, patience_seconds: float = 30.0) -> Iterator[None]:
    """Hold the lock file of a folder outside DVC's outs; a dying predecessor is given time to save and leave.

    Raises:
        LockHeld: another process kept it for `patience_seconds`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        deadline = time.monotonic() + patience_seconds
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise LockHeld(_holder(folder))
            time.sleep(POLL_SECONDS)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Closing would not do it: a forked child holds the same open file.
            fcntl.flock(file, fcntl.LOCK_UN)


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(folder: Path) -> str:
    pid = (folder / "lock").read_text() or "unknown"
    return f"{folder.name} is at work in process {pid}; wait for it or end it with `kill {pid}`, then run again"
