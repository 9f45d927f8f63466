"""a journal -> its run in an MLflow store: every line once, even if calls fail or processes die."""

import math
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.runtime import console
from pipeline.runtime.file_lock import folder_lock
from pipeline.runtime.redaction import shown
from pipeline.tracking import registry, run_of_key, run_times, sending
from pipeline.tracking.arrival import Content, check_arrived, lacks
from pipeline.tracking.cursor import Cursor, keep_cursor, read_cursor
from pipeline.tracking.journal import HISTORY, ROWS_PER_LINE, Header, Journal, Line
from pipeline.tracking.store import (
    PATIENCE_SECONDS,
    UPLOAD_RATE,
    artifacts_of,
    check_reachable,
    is_server,
    open_client,
)
from quatrain.errors import DataError
from quatrain.storage.atomic_write import sweep_temporaries
from quatrain.storage.folders import open_file


class Delivery:
    """Sends one journal to one store, from the last acknowledged line on.

    Repeating a call whose reply was lost does no harm: MLflow's SQL stores drop a metric equal to a
    stored one in name, value, time and step, and a run is found by its key.

    is_checked: whether the store is asked first if it still holds what it acknowledged; if not, all
    is sent anew. from_start: whether all is sent anew in any case.
    """

    def __init__(
        self, journal: Journal, uri: str, is_checked: bool = False, from_start: bool = False
    ) -> None:
        self.metrics = 0
        self.artifacts = 0
        self.patient_until = math.inf
        """Time until which a stage that ends should wait for the call in progress."""
        self._journal = journal
        self._uri = uri
        self._lock = ExitStack()
        self._client: Any = None
        self._run_id: str | None = None
        self._cursor = _valid(read_cursor(journal.folder, shown(uri)), journal)
        self._is_checked = is_checked
        self._from_start = from_start
        if journal.has_odd_time:
            _tell_of_clock()

    def step(self) -> bool:
        """Sends what fits one call; returns False if the store has everything.

        Raises:
            Exception: any error of mlflow, its libraries, the disk or the lock; call it again.
        """
        if self._journal.header is None:
            return False
        try:
            run_id = self._run_id or self._open(self._journal.header)
            offset, group = self._next()
            if group:
                self._send(run_id, group)
                check_arrived(self._call, run_id, group)
        except Exception as error:
            last_run_id = self._run_id
            self._run_id = None
            may_be_deleted = getattr(error, "error_code", None) in run_of_key.ABSENT
            if last_run_id is not None and may_be_deleted and not self._is_active(last_run_id):
                return True  # The next step creates another run.
            raise
        self._count(group)
        self._keep_cursor(run_id, offset)
        return bool(group)

    @property
    def is_begun(self) -> bool:
        """Returns whether the store was checked, or the start chosen, as asked for."""
        return not (self._is_checked or self._from_start)

    def pending(self) -> tuple[int, int]:
        """Returns how many metrics and files are not acknowledged."""
        lines = [line for _, line in self._journal.lines(self._cursor.offset)]
        return _metrics_in(lines), _files_in(lines)

    def close(self) -> None:
        """Releases the lock, so that another process can deliver."""
        self._lock.close()

    def _open(self, header: Header) -> str:
        self._lock.close()
        self._lock.enter_context(folder_lock(self._journal.folder, patience_seconds=0.0))
        sweep_temporaries(self._journal.folder)
        self.patient_until = time.monotonic() + PATIENCE_SECONDS
        check_reachable(self._uri)
        self.patient_until = math.inf
        self._client = open_client(self._uri)
        run_id = self._cursor.run_id
        if run_id is None or not self._is_active(run_id):
            with folder_lock(self._journal.folder.parent):
                run_id = run_of_key.find_or_create(self._call, header, *self._place())
            self._keep_cursor(run_id, 0)
        elif self._from_start or (self._is_checked and self._has_lost(run_id)):
            self._keep_cursor(run_id, 0)
        self._from_start = self._is_checked = False
        self._run_id = run_id
        return run_id

    def _has_lost(self, run_id: str) -> bool:
        """Returns whether the store lacks something of what was delivered."""
        end = self._cursor.offset
        delivered = [line for offset, line in self._journal.lines() if offset <= end]
        return lacks(self._call, run_id, Content.of(delivered)) is not None

    def _next(self) -> tuple[int, list[Line]]:
        """Returns the lines of the next call and the offset after them.

        Metrics are sent together up to MLflow's limit, any other line alone.
        """
        offset = self._cursor.offset
        rows = 0
        group: list[Line] = []
        for next_offset, line in self._journal.lines(offset):
            rows += len(line.get("rows", ()))
            fits = not group or line["kind"] == group[0]["kind"] == "metrics"
            if not fits or (group and rows > ROWS_PER_LINE):
                break
            offset = next_offset
            group.append(line)
        return offset, group

    def _send(self, run_id: str, group: list[Line]) -> None:
        line = group[0]
        match line["kind"]:
            case "begin":
                sending.send_params(self._call, run_id, line)
                sending.send_inputs(self._call, run_id, line)
            case "tags":
                sending.send_tags(self._call, run_id, line["tags"])
            case "card":
                registry.describe(self._call, run_id, line["name"], line["text"])
            case "metrics":
                sending.send_metrics(self._call, run_id, group)
            case "artifact":
                sending.send_file(self._call, run_id, self._file(line), line["path"])
            case "model":
                sending.send_model(self._call, run_id, self._file(line), line)
            case "end":
                self._end(run_id, line["status"])
            case "resume":
                self._call("update_run", run_id, "RUNNING")

    def _end(self, run_id: str, status: str) -> None:
        part = run_times.part_of(self._journal.folder.name)
        seconds = run_times.worked_seconds(line for _, line in self._journal.lines())
        end = run_times.end_run(self._call, run_id, part, seconds, status)
        header = self._journal.header
        if header and header.parent and header.parent.ends_with_child:
            parent_id = run_of_key.find_or_create_parent(self._call, header, *self._place())
            run_times.end_parent(self._call, parent_id, status, end)

    def _place(self) -> tuple[int, Path | None]:
        """Returns when the run began, and the folder of the files of a new experiment."""
        start = next(line["time"] for _, line in self._journal.lines())
        return start, artifacts_of(self._uri, _checkout_of(self._journal.folder.resolve()))

    def _file(self, line: Line) -> Path:
        """Returns the copy of a file; raises DataError if it was lost."""
        path = self._journal.folder / "artifacts" / line["file"]
        try:
            open_file(path).close()
        except DataError as error:
            raise DataError(f"{error}; restore it, or move its journal's folder away") from None
        return path

    def _is_active(self, run_id: str) -> bool:
        header = self._journal.header
        return header is not None and run_of_key.is_active(self._call, run_id, header.run_key)

    def _call(self, method: str, *arguments: Any, size: float = 0, **named: Any) -> Any:
        """Calls a method of the client; only calls to a server limit how long a stage waits."""
        seconds = PATIENCE_SECONDS + size / UPLOAD_RATE if is_server(self._uri) else math.inf
        self.patient_until = time.monotonic() + seconds
        return self._client.call(method, *arguments, size=size, **named)

    def _count(self, group: list[Line]) -> None:
        self.metrics += _metrics_in(group)
        self.artifacts += _files_in(group)

    def _keep_cursor(self, run_id: str, offset: int) -> None:
        cursor = Cursor(shown(self._uri), run_id, offset)
        if cursor != self._cursor:
            keep_cursor(self._journal.folder, cursor)
            self._cursor = cursor


@cache
def _tell_of_clock() -> None:
    """Prints a line to stderr, once in a process."""
    console.info(
        "warning: tracking: the clock was before 1970 or after 9999 while metrics were recorded; "
        "such a time is sent as the nearest one within, set the clock"
    )


def _metrics_in(lines: list[Line]) -> int:
    rows = [row for line in lines for row in line.get("rows", ())]
    return sum(not name.startswith(HISTORY) for name, _, _ in rows)


def _files_in(lines: list[Line]) -> int:
    return sum(line["kind"] in ("artifact", "model") for line in lines)


def _valid(cursor: Cursor, journal: Journal) -> Cursor:
    """Returns the cursor, at the start unless it points to the begin of a line or to the end."""
    return cursor if journal.has_line_at(cursor.offset) else cursor._replace(offset=0)


def _checkout_of(folder: Path) -> Path:
    """Returns the folder that holds `.state`, in which all journals are."""
    return next((each.parent for each in folder.parents if each.name == ".state"), folder)
