"""Interrupted work continues from the newest valid checkpoint, and only if it is the same work."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.runtime.errors import LockHeld
from pipeline.runtime.file_lock import folder_lock
from pipeline.storage.artifacts import save, write_json
from pipeline.storage.checkpoints import Checkpoints
from pipeline.storage.run_key import run_key
from quatrain.errors import DataError
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch


def arrays(step: int) -> dict[str, np.ndarray]:
    return {"params/kernel": np.full((3, 5), step, np.float32), "step": np.asarray(step)}


def saved(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, arrays(step))
    return checkpoints


def damage_slot_of(folder: Path, step: int) -> None:
    for slot in folder.iterdir():
        if f'"step": {step}' in (slot / "manifest.json").read_text():
            os.truncate(slot / "learner.safetensors", 50)


def latest_step(checkpoints: Checkpoints) -> int | None:
    result = checkpoints.latest()
    return None if result is None else result.step


def test_the_newest_checkpoint_is_loaded_by_another_process(tmp_path: Path):
    assert Checkpoints(tmp_path / "key").latest() is None
    saved(tmp_path, 100, 200, 300)
    result = Checkpoints(tmp_path).latest()
    assert result is not None
    assert result.step == 300
    for name, array in arrays(300).items():
        np.testing.assert_array_equal(result.arrays[name], array, strict=True)
    assert sorted(slot.name for slot in tmp_path.iterdir()) == ["slot-0", "slot-1"]


def test_a_damaged_checkpoint_is_passed_over_with_a_note_and_written_over_first(tmp_path: Path):
    checkpoints = saved(tmp_path, 100, 200)
    damage_slot_of(tmp_path, 200)
    assert latest_step(checkpoints) == 100
    (note,) = checkpoints.skipped
    assert "learner.safetensors: has 50 bytes instead of" in note
    Checkpoints(tmp_path).save(150, arrays(150))
    damage_slot_of(tmp_path, 150)
    assert latest_step(checkpoints) == 100
    damage_slot_of(tmp_path, 100)
    assert latest_step(checkpoints) is None
    assert len(checkpoints.skipped) == 2


def test_a_learner_that_is_not_finite_leaves_the_last_good_one_and_clearing_leaves_none(
    tmp_path: Path,
):
    checkpoints = saved(tmp_path / "key", 100, 200)
    message = "array 'step' holds NaN or infinity; nothing was written"
    with pytest.raises(DataError, match=message):
        checkpoints.save(300, {"step": np.asarray(np.nan)})
    assert latest_step(checkpoints) == 200
    assert checkpoints.skipped == ()
    for _ in range(2):
        checkpoints.clear()
        assert list(tmp_path.iterdir()) == []
    assert checkpoints.latest() is None


# The key of a computation.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src" / "envs").mkdir(parents=True)
    (tmp_path / "src" / "train.py").write_text("steps = 1\n")
    (tmp_path / "src" / "envs" / "grid.py").write_text("width = 3\n")
    save(tmp_path / "data", {"dataset.safetensors": {"x": np.arange(3)}}, {})
    return tmp_path


def key(project: Path, **changed: Any) -> str:
    arguments = {
        "stage": "train@allo",
        "params": {"seed": 3, "allo": {"steps": 500}},
        "root": project,
        "code": [project / "src" / "train.py", project / "src" / "envs"],
        "inputs": [project / "data", "5ac1"],
        "settings": {"device": "cpu", "threads": 1},
    }
    return run_key(**(arguments | changed))


def test_the_key_depends_neither_on_the_order_of_what_is_named_nor_on_the_place_of_the_project(
    project: Path, monkeypatch: Patch
):
    expected = key(project)
    assert expected == key(project, code=[project / "src/envs", project / "src/train.py"])
    assert expected == key(project, params={"allo": {"steps": 500}, "seed": 3})
    os.utime(project / "src" / "train.py", (0, 0))
    for folder in (project / "src", project.parent):
        monkeypatch.chdir(folder)
        assert key(project) == expected
    moved = project.rename(project.with_name("moved"))
    assert key(moved) == expected


def test_the_key_changes_with_each_thing_that_the_result_depends_on(project: Path):
    write_json(project / "other.json", 1)
    keys = [
        key(project),
        key(project, stage="evaluate@allo"),
        key(project, params={"seed": 4, "allo": {"steps": 500}}),
        key(project, inputs=["5ac1"]),
        key(project, inputs=[project / "other.json"]),
        key(project, settings={"device": "cpu", "threads": 2}),
    ]
    write_json(project / "other.json", 2)
    keys.append(key(project, inputs=[project / "other.json"]))
    (project / "src" / "train.py").write_text("steps = 2\n")
    keys.append(key(project))
    (project / "src" / "envs" / "grid.py").rename(project / "src" / "envs" / "maze.py")
    keys.append(key(project))
    save(project / "data", {"dataset.safetensors": {"x": np.arange(4)}}, {})
    keys.append(key(project))
    assert len(set(keys)) == len(keys)
    with pytest.raises(DataError, match=r"gone\.py: cannot be opened \(No such file"):
        key(project, code=[project / "gone.py"])


# The lock of a stage.


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
