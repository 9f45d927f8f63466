"""A process killed or a disk full at any moment leaves the old, the new, or what is neither."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.storage.artifacts import load, save
from pipeline.storage.checkpoints import Checkpoints
from quatrain.errors import DataError
from quatrain.storage import atomic_write
from quatrain.storage.atomic_write import (
    PARTIAL,
    sweep_temporaries,
    write_durably,
    write_exactly,
)
from tests.pipeline.fixture_types import Patch

OLD = {"data.safetensors": {"x": np.arange(7)}, "config.json": {"steps": 1}, "gone.csv": "step\n"}
NEW = {"data.safetensors": {"x": np.arange(5)}, "config.json": {"steps": 2}, "plot.txt": "new\n"}
ROOT = Path(__file__).parents[3]


def save_new(folder: Path) -> None:
    save(folder, NEW, {"run": "new"})


def checkpoint_new(folder: Path) -> None:
    Checkpoints(folder).save(300, {"x": np.full(5, 3.0)})


def kill_before_each_operation(root: Path, work: Callable[[Path], None]) -> None:
    """Leave root/n: root/old after `work` was killed before operation n, then before n/3."""
    for number in count(1):
        folder = root / str(number)
        shutil.copytree(root / "old", folder)
        if not _killed(work, folder, number):
            return shutil.rmtree(folder)
        _killed(work, folder, max(1, number // 3))


def _killed(work: Callable[[Path], None], folder: Path, number: int) -> bool:
    child = os.fork()
    if child == 0:
        os.environ["QUATRAIN_CRASH_AT"] = str(number)
        work(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


def campaign(root: Path, work: str) -> list[Path]:
    """The folders that `kill_before_each_operation` leaves, from a process that is safe to fork."""
    code = (
        "from pathlib import Path; import tests.pipeline.storage.test_atomic_write as t; "
        f"t.kill_before_each_operation(Path({str(root)!r}), t.{work})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment, timeout=120)
    return sorted(path for path in root.iterdir() if path.name != "old")


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_saving_killed_before_any_operation_is_never_read_as_something_else_and_can_be_repeated(
    tmp_path: Path,
):
    save(tmp_path / "old", OLD, {"run": "old"})
    left = campaign(tmp_path, "save_new")
    digest = save(tmp_path / "new", NEW, {"run": "new"})
    expected = files(tmp_path / "new")
    assert len(left) > 15
    runs = set()
    for folder in left:
        with suppress(DataError):
            result = load(folder)
            runs.add(result.info["run"])
            target = {"old": OLD, "new": NEW}[result.info["run"]]
            for name, content in result.contents.items():
                assert str(content) == str(target[name])
            assert result.contents.keys() == target.keys()
        assert save(folder, NEW, {"run": "new"}) == digest
        assert files(folder) == expected
    assert runs == {"old", "new"}


def test_a_checkpoint_killed_before_any_operation_leaves_the_last_one(tmp_path: Path):
    for step in (100, 200):
        Checkpoints(tmp_path / "old").save(step, {"x": np.full(5, step / 100)})
    left = campaign(tmp_path, "checkpoint_new")
    assert len(left) > 8
    for folder in left:
        result = Checkpoints(folder).latest()
        assert result is not None
        assert result.step in (200, 300)
        expected = np.full(5, result.step / 100)
        np.testing.assert_array_equal(result.arrays["x"], expected, strict=True)
        checkpoint_new(folder)
        again = Checkpoints(folder).latest()
        assert again is not None
        assert again.step == 300


@pytest.mark.parametrize("operation", ["open", "write", "fsync"])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_full_disk_leaves_the_old_content_and_nothing_partial(
    tmp_path: Path, monkeypatch: Patch, operation: str, number: int
):
    folder = tmp_path / "allo"
    save(folder, OLD, {})
    before = files(folder)
    calls = count(1)

    def fails(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is getattr(os, operation) and next(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*arguments)

    monkeypatch.setattr(atomic_write, "crash_point", fails)
    with pytest.raises(OSError, match="No space left on device") as error:
        save(folder, NEW, {})
    assert error.value.errno == errno.ENOSPC
    assert files(folder) == before
    assert load(folder).contents.keys() == OLD.keys()


def test_a_write_in_small_pieces_is_whole(tmp_path: Path, monkeypatch: Patch):
    def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is os.write:
            arguments = (arguments[0], arguments[1][:7])
        return function(*arguments)

    monkeypatch.setattr(atomic_write, "crash_point", slowly)
    write_durably(tmp_path / "a" / "b" / "text.txt", bytes(range(100)))
    assert files(tmp_path) == {"a/b/text.txt": bytes(range(100))}


def test_sweeping_removes_what_interrupted_writes_left_and_nothing_else(tmp_path: Path):
    write_durably(tmp_path / "kept.csv", b"")
    (tmp_path / "kept.csv.0123.partial").touch()
    sweep_temporaries(tmp_path)
    sweep_temporaries(tmp_path / "missing")
    assert files(tmp_path) == {"kept.csv": b""}


def test_the_next_writer_of_a_file_removes_what_a_killed_one_left(tmp_path: Path):
    for name in ("text.txt", "other.txt"):
        (tmp_path / f"{name}.01234567{PARTIAL}").touch()
    write_durably(tmp_path / "text.txt", b"new")
    assert files(tmp_path).keys() == {"text.txt", f"other.txt.01234567{PARTIAL}"}


def test_what_a_living_writer_is_writing_is_left_alone(tmp_path: Path):
    living = tmp_path / f"text.txt.01234567{PARTIAL}"
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_durably(tmp_path / "text.txt", b"new")
        sweep_temporaries(tmp_path)
        assert living.exists()
    sweep_temporaries(tmp_path)
    assert files(tmp_path) == {"text.txt": b"new"}


def test_a_file_that_was_swept_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: Patch
):
    lock, removed = fcntl.flock, []

    def sweep_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.glob(f"*{PARTIAL}"))
            removed[0].unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    write_durably(tmp_path / "text.txt", b"new")
    assert removed
    assert files(tmp_path) == {"text.txt": b"new"}


def test_a_folder_of_exactly_these_files_keeps_the_old_ones_until_all_are_written(
    tmp_path: Path, monkeypatch: Patch
):
    write_exactly(tmp_path, {"a": b"1", "b": b"2"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            write_exactly(tmp_path, {"b": b"3"})
    assert files(tmp_path) == {"a": b"1", "b": b"2"}
    write_exactly(tmp_path, {"b": b"3"})
    assert files(tmp_path) == {"b": b"3"}


def test_writing_replaces_a_link_and_not_what_it_points_to(tmp_path: Path):
    (tmp_path / "cache").write_text("cached")
    (tmp_path / "out.txt").symlink_to(tmp_path / "cache")
    write_durably(tmp_path / "out.txt", b"new")
    assert (tmp_path / "cache").read_text() == "cached"
    assert (tmp_path / "out.txt").read_bytes() == b"new"
