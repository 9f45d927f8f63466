"""bytes -> files that are complete or absent, even if the process is killed or the disk is full."""

import fcntl
import itertools
import os
import secrets
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

PARTIAL = ".partial"

Result = TypeVar("Result")
_numbers = itertools.count(1)


def crash_point(operation: Callable[..., Result], *arguments: object) -> Result:
    """Runs an operation on the file system; with QUATRAIN_CRASH_AT=n the process kills itself
    before the n-th.
    """
    if str(next(_numbers)) == os.environ.get("QUATRAIN_CRASH_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return operation(*arguments)


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file by `data` and syncs it to the disk; makes missing folders.

    Raises:
        OSError: e.g. the disk is full; the old file is untouched and nothing partial is left.
    """
    write_together(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes bytes by file name: first all beside the old files, then renames each in the given
    order. Removes what a killed writer of these files has left.

    Raises:
        OSError: e.g. the disk is full; the old files are untouched and nothing partial is left.
    """
    _make_folder(folder)
    sweep_temporaries(folder, files)
    partials = {folder / f"{name}.{secrets.token_hex(4)}{PARTIAL}": name for name in files}
    with ExitStack() as open_files:
        try:
            for partial, name in partials.items():
                descriptor = _create(partial)
                open_files.callback(os.close, descriptor)
                _write(descriptor, partial, files[name])
            for partial, name in partials.items():
                crash_point(os.replace, partial, folder / name)
        except BaseException:
            for partial in partials:
                partial.unlink(missing_ok=True)
            raise
    sync_folder(folder)


def write_exactly(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes a folder hold exactly these files: writes all of them, then removes any others.

    Raises:
        OSError: e.g. the disk is full; the old files are untouched and nothing partial is left.
    """
    write_together(folder, files)
    remove([path for path in sorted(folder.glob("*")) if path.name not in files])


def sweep_temporaries(folder: Path, names: Collection[str] | None = None) -> None:
    """Removes what killed writers have left in a folder: of these files, or of any.

    A writer that is alive holds the lock on its temporary file.
    """
    for partial in sorted(folder.glob(f"*{PARTIAL}")):
        if names is None or partial.stem.rpartition(".")[0] in names:
            _remove_abandoned(partial)


def remove(paths: list[Path]) -> None:
    """Removes files of one folder, if they are still there, and syncs the folder to the disk."""
    for path in paths:
        crash_point(path.unlink, True)
    if paths:
        sync_folder(paths[0].parent)


def sync_folder(folder: Path) -> None:
    """Syncs the folder's list of names, so that it survives a power cut."""
    descriptor = crash_point(os.open, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        crash_point(os.fsync, descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    crash_point(folder.mkdir, 0o777, False, True)
    sync_folder(folder.parent)


def _create(path: Path) -> int:
    """Returns the descriptor of a new file, which keeps the file locked until it is closed."""
    while True:
        descriptor = crash_point(
            os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return int(descriptor)
        os.close(descriptor)  # Another process took it for abandoned before it was locked.


def _remove_abandoned(partial: Path) -> None:
    try:
        descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        crash_point(os.unlink, partial)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(descriptor)


def _write(descriptor: int, path: Path, data: bytes) -> None:
    try:
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[crash_point(os.write, descriptor, remaining) :]
        crash_point(os.fsync, descriptor)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
