"""lines -> a file that grows durably, line by line, and what of it can be read back."""

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.tracking.journal_line import Line, decoded, in_time
from quatrain.errors import DataError
from quatrain.storage.atomic_write import crash_point, write_durably
from quatrain.storage.disk_errors import printable


class JournalFile:
    """Appends to a file and reads its complete lines; what a kill left after them is cut off."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._end = 0
        self._may_be_torn = True
        """Whether bytes after `_end` may be left of a write that was killed."""

    def load(self, take: Callable[[Any], str | None]) -> None:
        """Passes each line's JSON to `take`, which returns what is wrong with it.

        Raises:
            DataError: a line is wrong, one other than the last is no JSON, or it cannot be read.
        """
        if not os.path.lexists(self._path):
            return
        if not self._path.is_file():
            raise DataError(f"{printable(self._path)} is no file; move its folder away")
        try:
            with self._path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    line = decoded(raw)
                    if not raw.endswith(b"\n") or (line is None and not file.read(1)):
                        return
                    problem = "it is not JSON" if line is None else take(line)
                    if problem is not None:
                        raise DataError(
                            f"{printable(self._path)} line {number}: cannot be read; "
                            f"move its folder away, or restore or remove the line ({problem})"
                        )
                    self._end += len(raw)
        except OSError as error:
            raise DataError(
                f"{printable(self._path)} cannot be read: {error.strerror}; "
                "mend that or move its folder away"
            ) from None

    def lines(self, offset: int = 0) -> Iterator[tuple[int, Line]]:
        """Yields each complete line from byte `offset` on, with the offset of the next line."""
        if offset >= self._end:
            return
        with self._path.open("rb") as file:
            file.seek(offset)
            while offset < self._end:
                raw = file.readline()
                offset += len(raw)
                yield offset, in_time(decoded(raw))

    def has_line_at(self, offset: int) -> bool:
        """Returns whether a line begins or the last one ends at this byte."""
        if not 0 < offset < self._end:
            return offset in (0, self._end)
        with self._path.open("rb") as file:
            file.seek(offset - 1)
            return file.read(1) == b"\n"

    def append(self, data: bytes) -> None:
        """Appends bytes durably, after cutting off what an interrupted write may have left."""
        if not self._path.is_file():
            write_durably(self._path, b"")
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if self._may_be_torn:
            os.ftruncate(self._descriptor, self._end)
        self._may_be_torn = True
        try:
            left = memoryview(data)
            while left:
                left = left[crash_point(os.write, self._descriptor, left) :]
            crash_point(os.fsync, self._descriptor)
        except OSError as error:
            error.filename = os.fspath(self._path)
            raise
        self._may_be_torn = False
        self._end += len(data)

    def close(self) -> None:
        """Closes the file; a later write opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def zipped(folder: Path) -> bytes:
    """Returns a zip archive of all files of a folder, which is stored as a whole or not at all."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return out.getvalue()
