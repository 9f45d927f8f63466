"""Locks between processes; commands at the same time: what they print, and how they end."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.errors import LockHeld
from pipeline.runtime.processes import folder_lock, run_parallel, show_lines
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, pathlib, signal, subprocess, sys, time\n{code}"]


def run(folder: Path, at_once: int, codes: Mapping[str, str]) -> dict[str, int]:
    commands = {name: python(code) for name, code in codes.items()}
    return run_parallel(commands, at_once, folder, os.environ)


def test_a_job_that_fails_stops_no_other(tmp_path: Path):
    killed, done = "os.kill(os.getpid(), 9)", "pathlib.Path('done').touch()"
    codes = {"a": "sys.exit(7)", "b": killed, "c": done}
    assert run(tmp_path, 2, codes) == {"a": 7, "b": 137, "c": 0}
    assert (tmp_path / "done").exists()


def test_every_line_says_whose_it_is(tmp_path: Path, capsys: Capture):
    codes = {
        "train@allo": "print('train@allo: 5/10'); print(); print('> "
        "python -m'); sys.stderr.write('no end')",
        "train@iqn": "sys.stdout.buffer.write(b'50%\\r100%\\n\\xff\\n')",
    }
    run(tmp_path, 2, codes)
    out, err = capsys.readouterr()
    assert out == ""
    assert sorted(err.splitlines()) == [
        "train@allo: 5/10",
        "train@allo: > python -m",
        "train@allo: no end",
        "train@iqn: 100%",
        "train@iqn: 50%",
        "train@iqn: \ufffd",
    ]


def test_a_terminal_shows_the_state_of_a_bar_in_its_place_and_lines_above(capsys: Capture):
    states: list[str] = []
    bar: Any = SimpleNamespace(disable=False, set_description_str=states.append)
    show_lines("allo", ["\r", "train@allo: 50%\r", "warning: slow\n"], bar)
    assert states == ["", "train@allo: 50%"]
    assert capsys.readouterr().err == "allo: warning: slow\n"


SAVES = """
def save(*_):
    time.sleep(0.3)
    pathlib.Path({me!r} + ".saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
pathlib.Path({me!r}).touch()
while not pathlib.Path({other!r}).exists():
    time.sleep(0.01)
if {me!r} == "a":
    os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""


def test_sigterm_reaches_all_that_run_at_once_and_waits_until_they_have_saved(tmp_path: Path):
    """Both wait for each other first, and the third for an end of one."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    codes = {name: SAVES.format(me=name, other=other) for name, other in (("a", "b"), ("b", "a"))}
    ended = run(tmp_path, 2, codes | {"c": "pathlib.Path('c').touch()"})
    assert ended == dict.fromkeys("abc", 143)
    assert {path.name for path in tmp_path.glob("*.saved")} == {"a.saved", "b.saved"}
    assert not (tmp_path / "c").exists()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


STAGE = """
import ctypes
def save(*_):
    time.sleep(0.5)
    pathlib.Path("saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
os.kill({pid}, signal.SIGTERM)
time.sleep(60)
"""


def test_a_job_is_over_when_the_stage_below_a_dead_dvc_has_saved(tmp_path: Path):
    stage = python(STAGE.format(pid=os.getpid()))
    below = f"subprocess.Popen({stage!r}).wait()"
    assert run(tmp_path, 2, {"a": below}) == {"a": 143}
    assert (tmp_path / "saved").exists()


SAVES_ON_CTRL_C = """
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
os.kill(os.getppid(), signal.SIGINT)
time.sleep(0.5)
sys.exit(5)
"""


def test_ctrl_c_is_the_terminals_to_pass_on_and_starts_no_further_job(tmp_path: Path):
    """The terminal sends it to all; sent once more by us, it would end a stage that is saving."""
    codes = {"a": SAVES_ON_CTRL_C, "b": "pathlib.Path('b').touch()"}
    assert run(tmp_path, 1, codes) == {"a": 130, "b": 130}
    assert not (tmp_path / "b").exists()


# Locks.


def test_a_second_process_is_refused_with_the_process_of_the_first(tmp_path: Path):
    folder, pid = tmp_path / "locks" / "train@allo", os.getpid()
    message = f"train@allo is at work in process {pid}; wait for it or end it with `kill {pid}`"
    with folder_lock(folder):
        with pytest.raises(LockHeld, match=message), folder_lock(folder, patience_seconds=0.1):
            raise AssertionError("two hold one lock")
        with folder_lock(tmp_path / "locks" / "evaluate@allo", patience_seconds=0):
            pass
        # A forked child keeps the open file, but not the lock.
        opened = [fd for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == folder / "lock"]
        inherited = os.dup(int(opened[0].name))
    with folder_lock(folder, patience_seconds=0):
        os.close(inherited)


def test_a_killed_process_leaves_no_lock_to_the_one_that_waits_for_it(tmp_path: Path):
    code = (
        "import time; from pathlib import Path; from pipeline.runtime.processes import *\n"
        f"with folder_lock(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        message = f"process {process.pid};"
        with pytest.raises(LockHeld, match=message), folder_lock(tmp_path, patience_seconds=0):
            pass
        threading.Timer(0.2, process.kill).start()
        with folder_lock(tmp_path, patience_seconds=10):
            assert (tmp_path / "lock").read_text() == str(os.getpid())
