"""a journal's folder -> how much of it a store has acknowledged."""

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from quatrain.errors import DataError
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import LARGEST_JSON, read_bytes

FILE = "cursor.json"


class Cursor(NamedTuple):
    """Holds the store, without passwords, its run, and the offset of the next line to send."""

    uri: str
    run_id: str | None = None
    offset: int = 0


def read_cursor(folder: Path, uri: str) -> Cursor:
    """Returns what was delivered to `uri`; the start for another store or a damaged file."""
    with suppress(DataError, OSError, ValueError, TypeError, RecursionError):
        cursor = Cursor(**json.loads(read_bytes(folder / FILE, LARGEST_JSON)))
        is_run = cursor.run_id is None or (isinstance(cursor.run_id, str) and cursor.run_id)
        if cursor.uri == uri and is_run and type(cursor.offset) is int:
            return cursor
    return Cursor(uri)


def keep_cursor(folder: Path, cursor: Cursor) -> None:
    """Writes the cursor durably.

    Raises:
        DataError: something else is in its place.
        OSError: any other error of the disk.
    """
    path = folder / FILE
    if path.is_dir():
        raise DataError(f"{path} is a folder; move it away")
    write_durably(path, json.dumps(cursor._asdict()).encode())
