"""What killed runs leave in .dvc/tmp stops no later one; what a living dvc holds is kept."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.fs import localfs
from dvc.rwlock import rwlock as dvc_rwlock

from pipeline.dvc import rwlock

ARGUMENTS = "repro -s train@allo"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / rwlock.RWLOCK
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture(scope="module")
def living() -> Iterator[int]:
    """A process that was started as dvc is, and still runs."""
    command = [sys.executable, "-S", "-c", "input()", *ARGUMENTS.split()]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


@pytest.fixture(scope="module")
def dead() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def holder(pid: int, arguments: str = ARGUMENTS) -> dict[str, Any]:
    return {"pid": pid, "cmd": f"/somewhere/dvc/__main__.py {arguments}"}


def is_kept(lock: Path, text: str) -> bool:
    lock.write_text(text)
    rwlock.repair(lock.parents[2])
    return lock.exists() and lock.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "{}", '{"write": {"/data/allo": {"pid": 12', '{"write": {}, "re']
)
def test_a_half_written_or_empty_lock_goes_unless_a_living_dvc_writes_it(lock: Path, text: str):
    with lock.with_name("rwlock.lock").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        assert is_kept(lock, text)
    assert not is_kept(lock, text)
    rwlock.repair(lock.parents[2])


def test_a_lock_stays_while_one_of_its_holders_lives(lock: Path, living: int, dead: int):
    """A number of another command is none: dvc asks for the number alone, and would wait."""
    others = (holder(dead), holder(living, "repro -s train@iqn"))
    for is_held in (False, True):
        third = (holder(living),) if is_held else ()
        write = {str(number): each for number, each in enumerate((*others, *third))}
        read = {"/data": [*others, *third], "/inputs": [others[0]]}
        assert is_kept(lock, json.dumps({"write": write, "read": {}})) == is_held
        assert is_kept(lock, json.dumps({"write": {}, "read": read})) == is_held


def test_dvc_takes_the_lock_that_a_killed_one_left(lock: Path):
    content = {"write": {"/models/allo": holder(os.getpid())}, "read": {}}
    assert not is_kept(lock, json.dumps(content))
    with dvc_rwlock(str(lock.parent), localfs, "dvc repro", [], ["/models/allo"], False):
        holding = json.loads(lock.read_text())["write"]["/models/allo"]
    assert holding == {"pid": os.getpid(), "cmd": "dvc repro"}
