"""A process killed or a disk full at any moment leaves the old, the new, or what is neither."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.storage.checkpoints import Checkpoints
from quatrain.errors import FolderError
from quatrain.storage import atomic_write
from quatrain.storage.atomic_write import PARTIAL, sweep_temporaries, write_durably, write_exactly
from quatrain.storage.folders import load, save
from tests.campaign.faulty_disk import FaultyDisk, Killed, dies, is_full
from tests.pipeline.fixture_types import Patch

OLD = {"data.safetensors": {"x": np.arange(7)}, "config.json": {"steps": 1}, "gone.csv": "step\n"}
NEW = {"data.safetensors": {"x": np.arange(5)}, "config.json": {"steps": 2}, "plot.txt": "new\n"}


def save_new(folder: Path) -> str:
    return save(folder, NEW, {"run": "new"})


def checkpoint_new(folder: Path) -> None:
    Checkpoints(folder).save(300, {"x": np.full(5, 3.0)})


def disturbed(root: Path, work: Callable[[Path], object], happens: Any = dies) -> Iterator[Path]:
    """Yields copies of root/old in which the work was disturbed before operation 1, 2, and so on,
    and once more before a third of that.
    """
    for number in count(1):
        folder = root / str(number)
        shutil.copytree(root / "old", folder)
        for at in (number, max(1, number // 3)):
            with FaultyDisk(folder, partial(happens, at)) as disk, suppress(Killed, OSError):
                work(folder)
            if disk.points["killed" if happens is dies else "full"] < number == at:
                return
        yield folder


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
    digest = save_new(tmp_path / "new")
    expected = files(tmp_path / "new")
    runs = []
    for folder in disturbed(tmp_path, save_new):
        with suppress(FolderError):
            result = load(folder)
            runs.append(result.info["run"])
            target = {"old": OLD, "new": NEW}[runs[-1]]
            assert result.contents.keys() == target.keys()
            for name, content in result.contents.items():
                assert str(content) == str(target[name])
        assert save_new(folder) == digest
        assert files(folder) == expected
    assert len(runs) > 9
    assert {*runs} == {"old", "new"}


def test_a_checkpoint_killed_before_any_operation_leaves_the_last_one(tmp_path: Path):
    for step in (100, 200):
        Checkpoints(tmp_path / "old").save(step, {"x": np.full(5, step / 100)})
    steps = set()
    for folder in disturbed(tmp_path, checkpoint_new):
        result = Checkpoints(folder).latest()
        assert result is not None
        expected = np.full(5, result.step / 100)
        np.testing.assert_array_equal(result.arrays["x"], expected, strict=True)
        steps.add(result.step)
        checkpoint_new(folder)
        again = Checkpoints(folder).latest()
        assert again is not None
        assert again.step == 300
    assert steps == {200, 300}


def test_a_full_disk_leaves_the_old_content_and_nothing_partial(tmp_path: Path):
    save(tmp_path / "old", OLD, {})
    before = files(tmp_path / "old")
    full = 0
    for folder in disturbed(tmp_path, save_new, is_full):
        assert files(folder) == before
        full += 1
    assert full == 2 * (len(NEW) + 1), "each file is opened and written"


def test_a_write_in_small_pieces_is_whole(tmp_path: Path, monkeypatch: Patch):
    def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is os.write:
            arguments = (arguments[0], arguments[1][:7])
        return function(*arguments)

    monkeypatch.setattr(atomic_write, "crash_point", slowly)
    write_durably(tmp_path / "a" / "b" / "text.txt", bytes(range(100)))
    assert files(tmp_path) == {"a/b/text.txt": bytes(range(100))}


def test_a_writer_removes_what_a_killed_one_left_of_its_file_and_sweeping_what_is_left_of_any(
    tmp_path: Path,
):
    for name in ("text.txt", "other.txt"):
        (tmp_path / f"{name}.01234567{PARTIAL}").touch()
    write_durably(tmp_path / "text.txt", b"new")
    assert files(tmp_path).keys() == {"text.txt", f"other.txt.01234567{PARTIAL}"}
    for folder in (tmp_path, tmp_path / "missing"):
        sweep_temporaries(folder)
    assert files(tmp_path).keys() == {"text.txt"}


def test_what_a_living_writer_is_writing_is_left_alone(tmp_path: Path):
    living = tmp_path / f"text.txt.01234567{PARTIAL}"
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_durably(tmp_path / "text.txt", b"new")
        sweep_temporaries(tmp_path)
        assert living.exists()


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
    (tmp_path / "hard.txt").hardlink_to(tmp_path / "cache")
    for name in ("out.txt", "hard.txt"):
        write_durably(tmp_path / name, b"new")
        assert (tmp_path / "cache").read_text() == "cached"
        assert (tmp_path / name).read_bytes() == b"new"
