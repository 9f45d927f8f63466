"""What stands in the way on a disk is named in one line, with what to do."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quatrain.errors import DiskError
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import DiskFailure, describe, raised_as_disk_error
from tests.pipeline.fixture_types import Patch

MOVE = "; move it elsewhere, then run again"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    return tmp_path


def failure_of(work: Callable[[], object]) -> DiskFailure | None:
    with pytest.raises(OSError, match="Errno") as error:
        work()
    return describe(error.value)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda: Path("file/x").read_text(), f"file: is not a folder{MOVE}"),
        (lambda: Path("folder").read_text(), f"folder: is a folder where a file belongs{MOVE}"),
        (lambda: Path("file").mkdir(), f"file: is in the way{MOVE}"),
        (lambda: Path("file").rename("folder"), f"folder: is a folder where a file belongs{MOVE}"),
        (lambda: Path("folder").rmdir(), "folder: is in the way: a folder that is not empty; move"),
        (lambda: Path("folder/\x1b\n").read_text(), "folder/\\x1b\\n: is missing; restore it"),
        (lambda: Path("n" * 300).read_text(), f"{'n' * 300}: has a name too long for this disk;"),
        (lambda: write_durably(Path("folder/inner"), b""), "folder/inner: is a folder where a fil"),
    ],
)
@pytest.mark.usefixtures("place")
def test_what_is_in_the_way_is_named(work: Callable[[], object], text: str):
    failure = failure_of(work)
    assert failure is not None
    assert failure.text.startswith(text)
    assert not failure.is_environment


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "cannot write a/b: No space left on device; nothing half-written was left;"),
        (errno.EIO, "cannot use a/b: Input/output error; mend the disk or the share"),
        (errno.EMFILE, "cannot use a/b: Too many open files; raise the limit (`ulimit -n`)"),
        (errno.EACCES, "cannot use a/b: Permission denied; give this user the right to read"),
    ],
)
def test_what_the_machine_refuses_is_its_fault(number: int, remedy: str):
    failure = describe(OSError(number, os.strerror(number), "a/b"))
    assert failure is not None
    assert failure.is_environment
    assert failure.text.startswith(remedy)


class OfALibrary(OSError): ...


@pytest.mark.parametrize(
    "error",
    [
        OSError("a library's own"),
        OSError(errno.ECONNREFUSED, "Connection refused"),
        TimeoutError(errno.ETIMEDOUT, "timed out"),
        OfALibrary(errno.ENOENT, "no such host", "host"),
    ],
)
def test_errors_of_the_network_are_none_of_the_disk(error: OSError):
    assert describe(error) is None


@pytest.mark.usefixtures("place")
def test_a_failure_of_the_disk_is_raised_as_an_error_of_the_package():
    with pytest.raises(DiskError, match="shorten it"), raised_as_disk_error():
        write_durably(Path("n" * 300), b"")
