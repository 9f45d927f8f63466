"""what a killed dvc left in .dvc/tmp -> nothing that would stop the next one."""

import fcntl
import json
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.runtime import console
from pipeline.storage.atomic_write import write_durably

RWLOCK = Path(".dvc", "tmp", "rwlock")


class Holder(BaseModel):
    """A dvc process that reads or writes a path."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    pid: int
    cmd: str


class Held(BaseModel):
    """The content of dvc's rwlock: a path has many readers or one writer."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    write: dict[str, Holder] = {}
    read: dict[str, list[Holder]] = {}


def repair(work: Path) -> None:
    """Make .dvc/tmp/rwlock name living processes only, unless one of them is writing it just now.

    A kill in mid-write leaves half a file, which dvc refuses; a holder that is gone blocks dvc as soon as
    another process has got its number, which in a container happens at once. The other locks (.dvc/tmp/lock
    and rwlock.lock) are the kernel's, and end with their process.
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
        held = Held.model_validate(json.loads(path.read_bytes()))
    except (ValueError, ValidationError):
        console.info(f"repro: removed {RWLOCK}, which a killed run left half-written")
        path.unlink()
        return
    holders = [*held.write.values(), *(one for some in held.read.values() for one in some)]
    gone = sorted({holder.pid for holder in holders if not lives(holder)})
    if gone:
        numbers = ", ".join(map(str, gone))
        console.info(f"repro: released in {RWLOCK} what killed runs held (process {numbers})")
        write_durably(path, json.dumps(_without(held, gone)).encode())


def lives(holder: Holder) -> bool:
    """Whether this very command still runs: the number may be another process's by now.

    dvc notes sys.argv, whose first part looks otherwise in the list of processes.
    """
    arguments = holder.cmd.partition(" ")[2]
    try:
        return " ".join(psutil.Process(holder.pid).cmdline()).endswith(arguments)
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


def _without(held: Held, gone: list[int]) -> dict[str, Any]:
    write = {
        path: holder.model_dump() for path, holder in held.write.items() if holder.pid not in gone
    }
    read = {
        path: [one.model_dump() for one in some if one.pid not in gone]
        for path, some in held.read.items()
    }
    return {"write": write, "read": {path: some for path, some in read.items() if some}}
