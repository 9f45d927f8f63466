""".dvc/tmp/rwlock of a killed dvc -> one that does not stop the next dvc."""

import fcntl
import json
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.runtime import console
from quatrain.storage.atomic_write import write_durably

RWLOCK = Path(".dvc", "tmp", "rwlock")


class Holder(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    pid: int
    cmd: str


class LockTable(BaseModel):
    """Holds the content of dvc's rwlock: a path has many readers or one writer."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    write: dict[str, Holder] = {}
    read: dict[str, list[Holder]] = {}


def repair(work: Path) -> None:
    """Removes dead processes from .dvc/tmp/rwlock, unless another process is writing it.

    A kill during a write leaves half a file, which dvc refuses; a dead holder blocks dvc as soon as
    another process has its number, which in a container happens at once. The other locks
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
        _repair(path)


def _repair(path: Path) -> None:
    try:
        table = LockTable.model_validate(json.loads(path.read_bytes()))
    except (ValueError, ValidationError, RecursionError):
        console.info(f"repro: removed {RWLOCK}, which a killed run left half-written")
        path.unlink()
        return
    readers = [holder for holders in table.read.values() for holder in holders]
    dead = sorted({holder.pid for holder in (*table.write.values(), *readers) if not lives(holder)})
    if dead:
        console.info(
            f"repro: released in {RWLOCK} what killed runs held "
            f"(process {', '.join(map(str, dead))})"
        )
        write_durably(path, json.dumps(_without(table, dead)).encode())


def lives(holder: Holder) -> bool:
    """Returns whether this very command still runs: its number may belong to another process by
    now.

    dvc stores sys.argv, whose first part looks different in the list of processes.
    """
    arguments = holder.cmd.partition(" ")[2]
    try:
        return " ".join(psutil.Process(holder.pid).cmdline()).endswith(arguments)
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


def _without(table: LockTable, dead: list[int]) -> dict[str, Any]:
    write = {
        path: holder.model_dump() for path, holder in table.write.items() if holder.pid not in dead
    }
    read = {}
    for path, holders in table.read.items():
        living = [holder.model_dump() for holder in holders if holder.pid not in dead]
        if living:
            read[path] = living
    return {"write": write, "read": read}
