"""What killed runs leave in .dvc/tmp stops no later one; what a living dvc holds is kept."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dvc.lock import make_lock
from dvc.rwlock import rwlock as dvc_rwlock

from pipeline.dvc import rwlock

Capture = pytest.CaptureFixture[str]
ARGUMENTS = "repro -s train@allo"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / ".dvc" / "tmp" / "rwlock"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def living() -> Iterator[int]:
    """A process that was started as dvc is, and still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()", *ARGUMENTS.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended, and whose parent has not asked how."""
    process = subprocess.Popen([sys.executable, "-c", "", *ARGUMENTS.split()])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


def holder(pid: int, arguments: str = ARGUMENTS) -> dict[str, object]:
    return {"pid": pid, "cmd": f"/somewhere/dvc/__main__.py {arguments}"}


def dead() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"write": {"/data/allo": {"pid": 12',
        "[]",
        "\x00\x00",
        '{"write": {"/data/allo": 12}}',
        '{"/data": {}}',
    ],
)
def test_a_half_written_lock_is_removed(lock: Path, tmp_path: Path, capsys: Capture, text: str):
    lock.write_text(text)
    rwlock.repair(tmp_path)
    assert not lock.exists()
    assert (
        capsys.readouterr().err
        == "repro: removed .dvc/tmp/rwlock, which a killed run left half-written\n"
    )


def test_what_a_living_dvc_holds_is_kept(lock: Path, tmp_path: Path, living: int, capsys: Capture):
    text = json.dumps(
        {"write": {"/models/allo": holder(living)}, "read": {"/data/allo": [holder(living)]}}
    )
    lock.write_text(text)
    rwlock.repair(tmp_path)
    assert lock.read_text() == text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["{}", '{"write": {}, "read": {}}'])
def test_a_lock_that_nobody_holds_is_kept(lock: Path, tmp_path: Path, capsys: Capture, text: str):
    lock.write_text(text)
    rwlock.repair(tmp_path)
    assert lock.read_text() == text
    assert capsys.readouterr().err == ""


def test_what_dead_processes_hold_is_released_and_the_rest_is_kept(
    lock: Path, tmp_path: Path, living: int, capsys: Capture
):
    gone = dead()
    write = {"/models/allo": holder(gone), "/models/iqn": holder(living)}
    read = {"/data/allo": [holder(gone)], "/inputs": [holder(gone), holder(living)]}
    lock.write_text(json.dumps({"write": write, "read": read}))
    rwlock.repair(tmp_path)
    assert json.loads(lock.read_text()) == {
        "write": {"/models/iqn": holder(living)},
        "read": {"/inputs": [holder(living)]},
    }
    assert capsys.readouterr().err == (
        f"repro: released in .dvc/tmp/rwlock what killed runs held (process {gone})\n"
    )


def test_a_number_that_another_process_has_got_meanwhile_holds_nothing(
    lock: Path, tmp_path: Path, living: int
):
    """dvc itself asks only whether there is a process of that number, and would be blocked for
    ever.
    """
    lock.write_text(json.dumps({"write": {"/models/iqn": holder(living, "repro -s train@iqn")}}))
    rwlock.repair(tmp_path)
    assert json.loads(lock.read_text()) == {"write": {}, "read": {}}


def test_a_zombie_holds_nothing(lock: Path, tmp_path: Path, zombie: int):
    lock.write_text(json.dumps({"read": {"/data/iqn": [holder(zombie)]}}))
    rwlock.repair(tmp_path)
    assert json.loads(lock.read_text()) == {"write": {}, "read": {}}


def test_dvc_takes_the_lock_that_was_repaired(lock: Path, tmp_path: Path):
    from dvc.fs import localfs

    lock.write_text(json.dumps({"write": {"/models/allo": holder(os.getpid())}}))
    rwlock.repair(tmp_path)
    with dvc_rwlock(str(lock.parent), localfs, "dvc repro", [], ["/models/allo"], False):
        assert json.loads(lock.read_text())["write"]["/models/allo"] == {
            "pid": os.getpid(),
            "cmd": "dvc repro",
        }


def test_a_lock_that_a_living_dvc_is_writing_is_kept(lock: Path, tmp_path: Path):
    lock.write_text("{")
    with lock.with_name("rwlock.lock").open("a") as table:
        fcntl.flock(table, fcntl.LOCK_EX)
        rwlock.repair(tmp_path)
        assert lock.read_text() == "{"


def test_without_a_lock_there_is_nothing_to_repair(tmp_path: Path):
    rwlock.repair(tmp_path)
    assert list(tmp_path.iterdir()) == []


HOLDS_AND_DIES = """
import os, sys
from dvc.lock import make_lock
make_lock(sys.argv[1]).lock()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("name", ["lock", "rwlock.lock"])
def test_the_kernels_locks_end_with_their_process(lock: Path, name: str):
    """.dvc/tmp/lock names a process that is gone, and blocks nobody: nothing to repair."""
    path = lock.with_name(name)
    done = subprocess.run([sys.executable, "-c", HOLDS_AND_DIES, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_text().strip()
    table = make_lock(str(path))
    with table:
        assert table.is_locked
