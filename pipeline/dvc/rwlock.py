""".dvc/tmp/rwlock of a killed dvc -> none, so that it does not stop the next dvc."""

import fcntl
import json
from itertools import chain
from pathlib import Path

import psutil

from quatrain.storage.atomic_write import remove

RWLOCK = Path(".dvc", "tmp", "rwlock")


def repair(work: Path) -> None:
    """Removes .dvc/tmp/rwlock, unless a living dvc holds something in it or is writing it.

    dvc forgets dead holders itself, but not one whose number another process has by now, which in a
    container happens at once; and it refuses what a kill left half-written. The other locks
    (.dvc/tmp/lock and rwlock.lock) are the kernel's, and end with their process.
    """
    path = work / RWLOCK
    if not path.exists():
        return
    with path.with_name("rwlock.lock").open("a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not _is_held(path.read_bytes()):
            remove([path])


def _is_held(content: bytes) -> bool:
    try:
        table = json.loads(content)
    except ValueError:
        return False
    holders = chain(table.get("write", {}).values(), *table.get("read", {}).values())
    return any(_lives(holder["pid"], holder["cmd"]) for holder in holders)


def _lives(pid: int, command: str) -> bool:
    """Returns whether this very command still runs; dvc stores sys.argv, whose first part looks
    different in the list of processes.
    """
    arguments = command.partition(" ")[2]
    try:
        return " ".join(psutil.Process(pid).cmdline()).endswith(arguments)
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False
