"""bytes -> files that are complete or absent, even if the process is killed or the disk is full."""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Mapping
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
    order.

    Raises:
        OSError: e.g. the disk is full; the old files are untouched and nothing partial is left.
    """
    _make_folder(folder)
    partials = {folder / f"{name}.{secrets.token_hex(4)}{PARTIAL}": name for name in files}
    try:
        for partial, name in partials.items():
            _write(partial, files[name])
        for partial, name in partials.items():
            crash_point(os.replace, partial, folder / name)
    except BaseException:
        for partial in partials:
            partial.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sweep_temporaries(folder: Path) -> None:
    """Removes what an interrupted write left in a folder; the caller holds the lock on writing to
    it.
    """
    for partial in sorted(folder.glob(f"*{PARTIAL}")):
        crash_point(os.unlink, partial)


def remove(paths: list[Path]) -> None:
    """Removes files of one folder and syncs the folder to the disk."""
    for path in paths:
        crash_point(os.unlink, path)
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


def _write(path: Path, data: bytes) -> None:
    descriptor = crash_point(
        os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666
    )
    try:
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[crash_point(os.write, descriptor, remaining) :]
        crash_point(os.fsync, descriptor)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:
        os.close(descriptor)
