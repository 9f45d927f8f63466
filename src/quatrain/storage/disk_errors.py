"""an OSError -> what is in the way on the disk, why, and what to do; None for any other failure.

It needs no library, so that any Python can run commands that need none.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quatrain.errors import DiskError

MOVE = "move it elsewhere, then run again"
RESTORE = "restore it (`git checkout`, `dvc checkout`) or move its folder away, then run again"
FREE = "nothing half-written was left; free some space, then run again"
ACCESS = "give this user the right to read and write it, then run again"
MEND = "mend the disk or the share that it lies on, then run again"
LIMIT = "raise the limit (`ulimit -n`) or end other processes, then run again"

# Failures of the machine or of this user's rights, with or without a file name: nothing in the
# project is wrong.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BROKEN = (errno.EIO, errno.ESTALE, errno.EREMOTEIO)
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ETXTBSY)
MACHINE = {
    **dict.fromkeys(FULL, FREE),
    **dict.fromkeys(BROKEN, MEND),
    **dict.fromkeys(SCARCE, LIMIT),
    **dict.fromkeys(DENIED, ACCESS),
}
# A write or an fsync of an open file names none.
WITHOUT_NAME = (*FULL, *BROKEN, *SCARCE)
# What is wrong about the path itself; each has the remedy beside it.
IN_THE_WAY = {
    errno.EEXIST: ("is in the way", MOVE),
    errno.ENOTEMPTY: ("is in the way: a folder that is not empty", MOVE),
    errno.EISDIR: ("is a folder where a file belongs", MOVE),
    errno.ENOTDIR: ("is not a folder", MOVE),
    errno.ELOOP: ("is a link that cannot be followed", MOVE),
    errno.ENOENT: ("is missing", RESTORE),
    errno.ENAMETOOLONG: ("has a name too long for this disk", "shorten it"),
}


class DiskFailure(NamedTuple):
    """Holds one line about a failure. is_environment: the machine is to blame, not a file."""

    text: str
    is_environment: bool


def describe(error: OSError) -> DiskFailure | None:
    """Returns what a user can mend; None if the error is none of the disk, or names no file.

    Errors of the network and of libraries are OSErrors, too: they have classes of their own, or no
    file name.
    """
    if isinstance(error, shutil.Error):  # of copying a folder: one entry per file
        source, _, reason = error.args[0][0]
        return DiskFailure(f"{printable(source)}: cannot be copied ({reason}); {MOVE}", False)
    if type(error).__module__ != "builtins" or error.errno is None:
        return None
    path = path_of(error)
    if path is None and error.errno not in WITHOUT_NAME:
        return None
    remedy = MACHINE.get(error.errno)
    if remedy is None:
        return _in_the_way(str(path), error.errno, str(error.strerror))
    verb = "write" if error.errno in (*FULL, errno.EROFS) else "use"
    name = "a file" if path is None else printable(path)
    return DiskFailure(f"cannot {verb} {name}: {error.strerror}; {remedy}", True)


@contextmanager
def raised_as_disk_error() -> Iterator[None]:
    """Raises a failure of the disk as an error of the package, with one line about it."""
    try:
        yield
    except OSError as error:
        failure = describe(error)
        if failure is None:
            raise
        raise DiskError(failure.text) from None


def path_of(error: OSError) -> str | None:
    """Returns the path that the error names: of two, such as of a rename, the one it leads to."""
    is_of_target = error.filename2 is not None and error.errno != errno.ENOENT
    name = error.filename2 if is_of_target else error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None


def printable(path: str | Path) -> str:
    """Returns a path below the current folder without that folder, and with escapes for characters
    that no terminal shows.
    """
    text = os.fspath(path)
    with suppress(OSError, ValueError):  # the current folder was removed, or is another one
        text = os.fspath(Path(text).relative_to(Path.cwd()))
    return escaped(text)


def escaped(text: str) -> str:
    """Returns the text with escapes in place of control characters and undecodable bytes."""
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )


def _in_the_way(path: str, number: int, reason: str) -> DiskFailure:
    if number == errno.ENOENT and os.sep not in path:
        remedy = "restore it, or install it if it is a program"
        return DiskFailure(f"{printable(path)}: is missing; {remedy}", is_environment=True)
    if number == errno.ENOTDIR:
        path = str(next((part for part in Path(path).parents if part.is_file()), path))
    what, remedy = IN_THE_WAY.get(number, (f"cannot be used ({reason})", MOVE))
    return DiskFailure(f"{printable(path)}: {what}; {remedy}", is_environment=False)
