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
from tests.pipeline.fixture_types import Capture

ARGUMENTS = "repro -s train@allo"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / ".dvc" / "tmp" / "rwlock"
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


def holder(pid: int, arguments: str = ARGUMENTS) -> dict[str, object]:
    return {"pid": pid, "cmd": f"/somewhere/dvc/__main__.py {arguments}"}


def repaired(lock: Path, content: Any) -> Any:
    """What a repair leaves of a lock."""
    lock.write_text(json.dumps(content))
    rwlock.repair(lock.parents[2])
    return json.loads(lock.read_text())


@pytest.mark.parametrize("text", ["", '{"write": {"/data/allo": {"pid": 12', "[]", '{"/data": {}}'])
def test_a_half_written_lock_is_removed(lock: Path, capsys: Capture, text: str):
    lock.write_text(text)
    for _ in range(2):
        rwlock.repair(lock.parents[2])
        assert not lock.exists()
    why = "repro: removed .dvc/tmp/rwlock, which a killed run left half-written\n"
    assert capsys.readouterr().err == why


def test_what_a_living_dvc_holds_or_writes_is_kept(lock: Path, living: int, capsys: Capture):
    table = {"write": {"/models": holder(living)}, "read": {"/data": [holder(living)]}}
    for content in (table, {}):
        assert repaired(lock, content) == content
    lock.write_text("{")
    with lock.with_name("rwlock.lock").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        rwlock.repair(lock.parents[2])
        assert lock.read_text() == "{"
    assert capsys.readouterr().err == ""


def test_what_dead_processes_hold_is_released(lock: Path, living: int, dead: int, capsys: Capture):
    write = {"/models/allo": holder(dead), "/models/iqn": holder(living)}
    read = {"/data/allo": [holder(dead)], "/inputs": [holder(dead), holder(living)]}
    assert repaired(lock, {"write": write, "read": read}) == {
        "write": {"/models/iqn": holder(living)},
        "read": {"/inputs": [holder(living)]},
    }
    assert capsys.readouterr().err == (
        f"repro: released in .dvc/tmp/rwlock what killed runs held (process {dead})\n"
    )


def test_neither_zombies_nor_other_processes_hold_anything(lock: Path, living: int):
    """dvc itself asks only whether there is a process of that number, and would be blocked for
    ever.
    """
    with subprocess.Popen(["true", *ARGUMENTS.split()]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        read = {"/data/iqn": [holder(zombie.pid)]}
        write = {"/models/iqn": holder(living, "repro -s train@iqn")}
        assert repaired(lock, {"write": write, "read": read}) == {"write": {}, "read": {}}


def test_dvc_takes_the_lock_that_was_repaired(lock: Path):
    repaired(lock, {"write": {"/models/allo": holder(os.getpid())}})
    with dvc_rwlock(str(lock.parent), localfs, "dvc repro", [], ["/models/allo"], False):
        holding = json.loads(lock.read_text())["write"]["/models/allo"]
    assert holding == {"pid": os.getpid(), "cmd": "dvc repro"}
