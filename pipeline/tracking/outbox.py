"""params, metrics, files and status of a run -> an SQLite file, from which MLflow gets them."""

import errno
import math
import operator
import os
import posixpath
import sqlite3
from collections.abc import Container, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.tracking.records import HEADER, Header, Point, Record, Row, check_names, now, short
from quatrain.errors import DataError
from quatrain.storage.atomic_write import crash_point, sync_folder
from quatrain.storage.disk_errors import printable

# How long a writer waits for another one: delivery marks what was sent in the same file.
BUSY_SECONDS = 60.0
# Result codes of SQLite that are failures of the disk; their lowest byte says which.
DISK_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}
PRIMARY_CODE = 0xFF

# Records of which another part of the run, such as another evaluation, may have sent its own.
REPLACEABLE = ("begin", "tag", "card", "version", "artifact")
# What `sent` of a metric says if MLflow is not to draw it; the others are 0, then 1.
NEVER = 2

# A record is what the run has now, not an event: a later one of its kind and name replaces it and
# is sent again. `value` has no type, because SQLite would drop the sign of -0.0; NaN is NULL.
SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,
    time INTEGER NOT NULL, body TEXT NOT NULL, data BLOB, sent INTEGER NOT NULL,
    UNIQUE (kind, name)
);
CREATE TABLE IF NOT EXISTS metrics (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, step INTEGER NOT NULL, value,
    time INTEGER NOT NULL, sent INTEGER NOT NULL, UNIQUE (name, step)
);
CREATE INDEX IF NOT EXISTS unsent ON metrics (id) WHERE NOT sent;
PRAGMA user_version = 1;
COMMIT;
"""
RECORD = "id, kind, name, time, body, data, sent"
POINT = "id, name, step, value, time"
PUT = (
    f"INSERT OR REPLACE INTO records ({RECORD}) SELECT NULL, ?1, ?2, ?3, ?4, ?5, 0"
    " WHERE NOT EXISTS (SELECT 1 FROM records"
    " WHERE kind = ?1 AND name = ?2 AND body = ?4 AND data IS ?5)"
)
ADD_METRIC = "INSERT OR IGNORE INTO metrics (name, step, value, time, sent) VALUES (?, ?, ?, ?, ?)"


class Outbox:
    """Holds one stage's part of a run until MLflow has it, and afterwards. Any process may use it.

    Each method is one transaction, synced to the disk when it returns, in the rollback mode of
    SQLite, which is safe on network file systems too.

    Raises:
        OSError: the disk is full, or refuses to be read or written.
        DataError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem

    # Recording.

    def begin(self, header: Header, time: int | None = None, anew: bool = False) -> None:
        """Starts the run or continues it: the first header stays, the end is open again, and what
        may have been replaced in the store meanwhile is sent again.

        time: when the work began, in milliseconds since 1970; now if it is None. anew: whether the
        metrics of work that had ended are forgotten, because it is done again.

        Raises:
            ValueError: MLflow refuses a name, or the outbox holds another run.
        """
        check_names("param", header.params)
        stored = self.header
        if stored is not None and stored.run_key != header.run_key:
            raise ValueError(f"{self.name} holds run {stored.run_key}, not {header.run_key}")
        if stored is None:
            params = {name: short(value) for name, value in header.params.items()}
            body = HEADER.dump_json(header._replace(params=params)).decode()
            self.put("begin", body=body, time=time)
        else:
            with self._transaction() as database:
                if anew:
                    ended = "SELECT 1 FROM records WHERE kind = 'end'"
                    database.execute(f"DELETE FROM metrics WHERE EXISTS ({ended})")
                database.execute("DELETE FROM records WHERE kind = 'end'")
                database.execute(f"UPDATE records SET sent = 0 WHERE kind IN {REPLACEABLE}")

    def metrics(
        self, rows: Iterable[Row], time: int | None = None, hidden: Container[str] = ()
    ) -> None:
        """Records metrics, unless their (name, step) is recorded already.

        A resumed training repeats the steps since its checkpoint, and MLflow tells a repetition
        from a new value by its time alone. time: milliseconds since 1970; now if it is None.
        hidden: names of metrics that are kept here and never sent.
        """
        time = time or now()
        new = [
            (name, operator.index(step), float(value), time, NEVER if name in hidden else 0)
            for name, step, value in rows
        ]
        check_names("metric", {row[0] for row in new})
        if new:
            with self._transaction() as database:
                database.executemany(ADD_METRIC, new)

    def artifact(self, path: Path, folder: str = "") -> None:
        """Records a copy of a file for a folder of the run, unless unchanged."""
        self.put("artifact", posixpath.join(folder, path.name), data=path.read_bytes())

    def end(self, status: str, time: int | None = None) -> None:
        """Records that the run is FINISHED, FAILED or KILLED; time: as that of `begin`."""
        self.put("end", body=status, time=time)

    def end_killed(self) -> bool:
        """Ends a run whose process was killed, at its last record; returns whether it was open."""
        is_open = self.has("begin") and not self.has("end")
        if is_open:
            self.end("KILLED", self.last_time)
        return is_open

    def put(
        self,
        kind: str,
        name: str = "",
        body: str = "",
        *,
        data: bytes | None = None,
        time: int | None = None,
    ) -> None:
        """Records something unless it is recorded already, unchanged.

        A `tag`, a `card` and a `version` (its tags, in JSON) have a body, an `artifact` has data, a
        `model` has data (a zip of MLflow's format) and a card. time: milliseconds since 1970; now
        if it is None.
        """
        with self._transaction() as database:
            database.execute(PUT, (kind, name, time or now(), body, data))

    def absorb(self, other: "Outbox") -> None:
        """Records what another outbox holds between its begin and its end, with its times, as
        `metrics` and `put` do.
        """
        points = other._read(
            f"SELECT name, step, value, time, sent & {NEVER} FROM metrics ORDER BY id"
        )
        records = other._read(
            "SELECT kind, name, time, body, data FROM records"
            " WHERE kind NOT IN ('begin', 'end', 'destination') ORDER BY id"
        )
        with self._transaction() as database:
            database.executemany(ADD_METRIC, points)
            database.executemany(PUT, records)

    # What is recorded.

    @property
    def header(self) -> Header | None:
        begin = self.record("begin")
        try:
            return None if begin is None else HEADER.validate_json(begin.body)
        except ValueError:
            raise _damaged(self.path, "its header cannot be read") from None

    @property
    def begun_at(self) -> int:
        """Returns when the work began, in milliseconds since 1970; 0 if it did not."""
        begin = self.record("begin")
        return begin.time if begin else 0

    @property
    def last_time(self) -> int:
        """Returns when something was recorded last, in milliseconds since 1970."""
        query = "SELECT max(time) FROM (SELECT time FROM records UNION SELECT time FROM metrics)"
        return self._read(query)[0][0] or 0

    def has(self, kind: str) -> bool:
        """Returns whether there is a record of a kind, without reading its data."""
        return bool(self._read("SELECT 1 FROM records WHERE kind = ? LIMIT 1", kind))

    def record(self, kind: str) -> Record | None:
        """Returns the record of a kind; the first one if there are several."""
        return next(iter(self.records(kind)), None)

    def records(self, kind: str) -> list[Record]:
        """Returns the records of a kind, in the order of recording."""
        rows = self._read(f"SELECT {RECORD} FROM records WHERE kind = ? ORDER BY id", kind)
        return [Record(*row) for row in rows]

    def points(self, prefix: str = "", after: int = 0) -> list[Point]:
        """Returns metrics in the order of recording, values bit for bit.

        prefix: of their names. after: the id of the last one that is not asked for.
        """
        query = f"SELECT {POINT} FROM metrics WHERE id > ? AND substr(name, 1, ?) = ? ORDER BY id"
        return _points(self._read(query, after, len(prefix), prefix))

    def history(self, prefix: str = "") -> dict[str, list[tuple[int, float]]]:
        """Returns the (step, value) of each metric with this prefix, by the rest of its name."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for each in self.points(prefix):
            curves.setdefault(each.name.removeprefix(prefix), []).append((each.step, each.value))
        return curves

    def last_step(self, prefix: str) -> int:
        """Returns the last step of the metrics with this prefix; 0 if there is none."""
        query = "SELECT max(step) FROM metrics WHERE substr(name, 1, ?) = ?"
        return self._read(query, len(prefix), prefix)[0][0] or 0

    def copy(self) -> bytes:
        """Returns a copy of the whole file, which may be written meanwhile."""
        with self._transaction() as database:
            return database.serialize()

    # Delivery.

    def set_destination(self, uri: str, run_id: str) -> None:
        """Records the store and the ID of the run to send to, and marks all as not sent."""
        with self._transaction() as database:
            database.execute("DELETE FROM records WHERE kind = 'destination'")
            database.execute("UPDATE records SET sent = 0")
            database.execute("UPDATE metrics SET sent = 0 WHERE sent = 1")
            destination = "(NULL, 'destination', ?, 0, ?, NULL, 1)"
            database.execute(f"INSERT INTO records ({RECORD}) VALUES {destination}", (uri, run_id))

    def next_record(self) -> Record | None:
        """Returns the next record to send, in the order of recording."""
        rows = self._read(f"SELECT {RECORD} FROM records WHERE NOT sent ORDER BY id LIMIT 1")
        return Record(*rows[0]) if rows else None

    def next_points(self, count: int) -> list[Point]:
        """Returns the next metrics to send, at most `count`."""
        query = f"SELECT {POINT} FROM metrics WHERE NOT sent ORDER BY id LIMIT ?"
        return _points(self._read(query, count))

    def mark_sent(self, last: Record | Point) -> None:
        """Records that the store has a record, or all metrics up to this one.

        What has replaced a record meanwhile has another id, and is sent, too.
        """
        query = "UPDATE records SET sent = 1 WHERE id = ?"
        if isinstance(last, Point):
            query = "UPDATE metrics SET sent = 1 WHERE NOT sent AND id <= ?"
        with self._transaction() as database:
            database.execute(query, (last.id,))

    def last_sent(self) -> dict[str, int]:
        """Returns the last step of each metric that the store acknowledged."""
        return dict(self._read("SELECT name, max(step) FROM metrics WHERE sent = 1 GROUP BY name"))

    def pending(self) -> tuple[int, int]:
        """Returns how many metrics and files are not acknowledged."""
        (metrics,), (files,) = self._read(
            "SELECT count(*) FROM metrics WHERE NOT sent UNION ALL"
            " SELECT count(*) FROM records WHERE NOT sent AND kind IN ('artifact', 'model')"
        )
        return metrics, files

    # SQLite.

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._open() as database:
            return database.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            commit(database)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Opens the file for one transaction, so that no thread or child process shares it."""
        if not self.path.parent.is_dir():
            crash_point(os.makedirs, self.path.parent, 0o777, True)
            sync_folder(self.path.parent.parent)
        try:
            with closing(
                sqlite3.connect(self.path, BUSY_SECONDS, isolation_level=None)
            ) as database:
                if not database.execute("PRAGMA user_version").fetchone()[0]:
                    database.executescript(SCHEMA)
                database.execute("PRAGMA synchronous = EXTRA")
                yield database
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & PRIMARY_CODE
            if code not in DISK_ERRORS:
                raise _damaged(self.path, error) from None
            number = DISK_ERRORS[code]
            raise OSError(number, os.strerror(number), str(self.path)) from None


def commit(database: sqlite3.Connection) -> None:
    crash_point(database.execute, "COMMIT")


def _points(rows: list[Any]) -> list[Point]:
    return [
        Point(number, name, step, math.nan if value is None else value, time)
        for number, name, step, value, time in rows
    ]


def _damaged(path: Path, reason: object) -> DataError:
    remedy = "move it elsewhere, then run again"
    return DataError(f"{printable(path)} is damaged ({reason})", remedy=remedy)
