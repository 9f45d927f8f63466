"""A stage is at work in one process at a time."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.runtime.errors import LockHeld
from pipeline.runtime.file_lock import folder_lock
from tests.conftest import ROOT


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
        "import time; from pathlib import Path; from pipeline.runtime.file_lock import *\n"
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
