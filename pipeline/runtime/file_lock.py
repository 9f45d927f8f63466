"""a lock file -> one process at a time, also while only its child processes are left.

flock instead of the library filelock: a lock that child processes inherit must be released by
closing its descriptor alone, and a lock that they must not keep by LOCK_UN. filelock always does
the second.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.runtime.errors import LockHeld

POLL_SECONDS = 0.05


def acquire(path: Path, patience_seconds: float) -> int | None:
    """Returns the locked descriptor of a lock file; None if another process keeps it for
    `patience_seconds`.

    The lock lasts until every copy of the descriptor is closed, or until LOCK_UN.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
        time.sleep(POLL_SECONDS)


@contextmanager
def folder_lock(folder: Path, patience_seconds: float = 30.0) -> Iterator[None]:
    """Locks a folder outside DVC's outs; a predecessor that is ending has `patience_seconds` to
    save and leave.

    Raises:
        LockHeld: another process kept the lock.
    """
    path = folder / "lock"
    descriptor = acquire(path, patience_seconds)
    if descriptor is None:
        pid = path.read_text() or "unknown"
        raise LockHeld(
            f"{folder.name} is at work in process {pid}; "
            f"wait for it or end it with `kill {pid}`, then run again"
        )
    try:
        with suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        # Closing alone is not enough: a forked child holds the same open file.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
