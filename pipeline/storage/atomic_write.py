"""bytes -> files that are there whole or not at all, whatever kills the process or fills the disk."""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

PARTIAL = ".partial"
"""Ends the name of a file that is still being written."""

Result = TypeVar("Result")
_numbers = itertools.count(1)


def crash_point(operation: Callable[..., Result], *arguments: object) -> Result:
    """One operation on the file system; with QUATRAIN_CRASH_AT=n the process kills itself before its n-th."""
    if str(next(_numbers)) == os.environ.get("QUATRAIN_CRASH_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return operation(*arguments)


def write_durably(path: Path, data: bytes) -> None:
    """Put `data` in the file's place, on the disk itself; folders on the way are made.

    Raises:
        OSError: e.g. the disk is full; the old file is untouched and nothing partial is left.
    """
    write_together(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write name -> bytes: all of it beside the old files first, then each renamed in the order given.

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
    """Remove what an interrupted write left in a folder; only for who holds the lock on writing to it."""
    for partial in sorted(folder.glob(f"*{PARTIAL}")):
        crash_point(os.unlink, partial)


def remove(paths: list[Path]) -> None:
    """Remove files of one folder, on the disk itself."""
    for path in paths:
        crash_point(os.unlink, path)
    if paths:
        sync_folder(paths[0].parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of names survive a power cut."""
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
        left = memoryview(data)
        while left:
            left = left[crash_point(os.write, descriptor, left) :]
        crash_point(os.fsync, descriptor)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:
        os.close(descriptor)
