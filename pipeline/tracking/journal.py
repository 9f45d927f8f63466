"""params, metrics, files and status of a run -> lines on the disk, to be delivered to MLflow."""

import json
import math
import operator
import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime.redaction import redact
from pipeline.tracking.journal_file import JournalFile, zipped
from pipeline.tracking.journal_line import (
    STATUSES,
    Line,
    in_time,
    is_name,
    is_run_key,
    problem_of,
)
from quatrain.errors import DataError
from quatrain.storage.atomic_write import sweep_temporaries, write_durably
from quatrain.storage.folders import read_bytes

# Metrics that MLflow takes in one call.
ROWS_PER_LINE = 1000
# Metrics below it are kept in the journal and never sent: see `charts`.
HISTORY = "history/"
# Characters; MLflow cuts the rest off.
LONGEST_PARAM = 6000

# Name, step, value.
Row = tuple[str, int, float]


class DatasetInput(NamedTuple):
    name: str
    digest: str
    # `training` or `evaluation`.
    context: str
    source: str


class Parent(NamedTuple):
    """Holds the run of a whole pipeline or sweep; all stages find it by its key.

    tag: marks that run. ends_with_child: its status is that of its last child.
    """

    run_key: str
    run_name: str
    tag: str = "quatrain.pipeline"
    ends_with_child: bool = True


class Header(NamedTuple):
    """Holds what is fixed before a run starts; journals with one `run_key` describe one run."""

    run_key: str
    experiment: str
    run_name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    inputs: tuple[DatasetInput, ...] = ()
    parent: Parent | None = None


class Journal:
    """Records one stage's part of a run. One process writes it; any process may read it.

    Raises:
        DataError: a line other than the last one cannot be read, or a line records nothing known.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header: Header | None = None
        self.has_model = False
        self.last_time = 0
        """When the last line was written, in milliseconds since 1970."""
        self.has_odd_time = False
        """Whether the clock was before 1970 or after the year 9999."""
        self._file = JournalFile(folder / "journal.jsonl")
        self._points: dict[str, dict[int, float]] = {}
        self._files: dict[tuple[str, str], str] = {}
        self._notes: dict[str, Line] = {}
        self._file.load(self._take)

    def begin(self, header: Header, started: int | None = None) -> None:
        """Starts the run or continues it: the first header stays. Removes passwords from URIs.

        started: when the work began, in milliseconds since 1970; now if it is None.

        Raises:
            ValueError: MLflow refuses a name, or the folder holds another run.
        """
        if not is_run_key(header.run_key):
            raise ValueError(f"run key {header.run_key!r}: use letters, digits and . _ @ - only")
        for kind, names in (("param", header.params), ("tag", header.tags)):
            for name in names:
                _check_name(kind, name)
        for copies in self.folder.glob("artifacts/*"):
            sweep_temporaries(copies)
        if self.header is None:
            self._append([_begin_line(header) | {"time": started or now()}])
        elif self.header.run_key != header.run_key:
            raise ValueError(
                f"{self.folder} holds run {self.header.run_key}, not {header.run_key}; "
                "use another folder"
            )
        else:
            self._append([{"kind": "resume", "time": started or now()}])
        for name, value in header.params.items():
            if len(value) > LONGEST_PARAM:
                self._keep(_file_of(name), value.encode(), "params")

    def metrics(self, rows: Iterable[Row]) -> None:
        """Records metrics with the current time, unless their (name, step) is recorded already.

        A resumed training repeats the steps since its checkpoint, and MLflow tells a repetition
        from a new value by its timestamp alone.
        """
        new: dict[tuple[str, int], float | str] = {}
        for name, step, value in rows:
            _check_name("metric", name)
            key = (name, operator.index(step))
            if key not in new and key[1] not in self._points.get(name, {}):
                new[key] = float(value) if math.isfinite(value) else str(float(value))
        encoded = [[*key, value] for key, value in new.items()]
        line = {"kind": "metrics", "time": now()}
        self._append(
            [
                {**line, "rows": encoded[start : start + ROWS_PER_LINE]}
                for start in range(0, len(encoded), ROWS_PER_LINE)
            ]
        )

    def artifact(self, path: Path, artifact_path: str = "") -> None:
        """Records a copy of a file for the run's folder `artifact_path`, unless unchanged."""
        self._keep(path.name, path.read_bytes(), artifact_path)

    def tags(self, tags: Mapping[str, str]) -> None:
        """Records tags that were not known at the begin, unless unchanged."""
        for name in tags:
            _check_name("tag", name)
        self._note({"kind": "tags", "tags": {name: redact(text) for name, text in tags.items()}})

    def model(self, folder: Path, name: str, card: str = "") -> None:
        """Records a model in MLflow's format, a version of the registered model `name`; once."""
        if not self.has_model:
            file = self._copy(f"{name}.zip", zipped(folder))
            line = {"kind": "model", "name": name, "file": file, "card": redact(card)}
            self._append([line | {"time": now()}])

    def card(self, name: str, text: str) -> None:
        """Records what the registered model `name` says of the version of this run."""
        self._note({"kind": "card", "name": name, "text": redact(text)})

    def end(self, status: str, ended: int | None = None) -> None:
        """Records how the run ended; if it is continued, a later end counts.

        ended: when the work ended, in milliseconds since 1970; now if it is None.
        """
        if status not in STATUSES:
            raise ValueError(f"status {status!r}: use one of {', '.join(STATUSES)}")
        self._append([{"kind": "end", "status": status, "time": ended or now()}])

    def history(self) -> dict[str, list[tuple[int, float]]]:
        """Returns metric name -> (step, value) in the order of writing, values bit for bit."""
        return {name: list(points.items()) for name, points in self._points.items()}

    def lines(self, offset: int = 0) -> Iterator[tuple[int, Line]]:
        """Yields each complete line from byte `offset` on, with the offset of the next line."""
        return self._file.lines(offset)

    def has_line_at(self, offset: int) -> bool:
        """Returns whether a line begins or the last one ends at this byte."""
        return self._file.has_line_at(offset)

    def close(self) -> None:
        """Closes the file; a later write opens it again."""
        self._file.close()

    def _take(self, line: Any) -> str | None:
        """Applies a line of the file; returns what is wrong with it."""
        problem = problem_of(line)
        if problem is None and (line["kind"] == "begin") != (self.header is None):
            of_this_run = self.header is not None and line["run_key"] == self.header.run_key
            problem = None if of_this_run else "it is not of one run, which starts with `begin`"
        if problem is None:
            self._apply(line)
        return problem

    def _apply(self, line: Line) -> None:
        if line["kind"] == "metrics":
            for name, step, value in line["rows"]:
                self._points.setdefault(name, {})[step] = float(value)
        elif line["kind"] == "artifact":
            self._files[line["path"], posixpath.basename(line["file"])] = line["file"]
        elif line["kind"] == "begin" and self.header is None:
            fields = {name: line[name] for name in Header._fields if name in line}
            fields["inputs"] = tuple(DatasetInput(**entry) for entry in line["inputs"])
            fields["parent"] = Parent(**line["parent"]) if line.get("parent") else None
            self.header = Header(**fields)
        elif line["kind"] == "model":
            self.has_model = True
        elif line["kind"] in ("tags", "card"):
            self._notes[line["kind"]] = line
        timed = in_time(line)
        self.last_time = timed.get("time", self.last_time)
        self.has_odd_time |= timed != line

    def _append(self, lines: list[Line]) -> None:
        if not lines:
            return
        data = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
        self._file.append(data)
        for line in lines:
            self._apply(line)

    def _keep(self, name: str, data: bytes, artifact_path: str) -> None:
        old = self._files.get((artifact_path, name))
        if old is None or not self._holds(old, data):
            copy = self._copy(name, data)
            self._append([{"kind": "artifact", "file": copy, "path": artifact_path}])

    def _holds(self, file: str, data: bytes) -> bool:
        """Returns whether a copy is still there and unchanged."""
        with suppress(DataError):
            return read_bytes(self.folder / "artifacts" / file, len(data)) == data
        return False

    def _note(self, line: Line) -> None:
        if self._notes.get(line["kind"]) != line:
            self._append([line])

    def _copy(self, name: str, data: bytes) -> str:
        """Stores bytes under the journal's `artifacts`, in a folder named by their digest."""
        digest = sha256(data).hexdigest()[:16]
        copy = self.folder / "artifacts" / digest / name
        write_durably(copy, data)
        return f"{digest}/{name}"


def _begin_line(header: Header) -> Line:
    """Returns the JSON of a header; a param too long for MLflow becomes its digest and a file."""
    return {
        "kind": "begin",
        "time": now(),
        **header._asdict(),
        "params": {name: _short(name, value) for name, value in header.params.items()},
        "tags": {name: redact(value) for name, value in header.tags.items()},
        "inputs": [entry._asdict() for entry in header.inputs],
        "parent": header.parent and header.parent._asdict(),
    }


def _short(name: str, value: str) -> str:
    if len(value) <= LONGEST_PARAM:
        return value
    digest = sha256(value.encode()).hexdigest()
    return f"{len(value)} characters, sha256 {digest}: whole in artifact params/{_file_of(name)}"


def _file_of(param: str) -> str:
    return f"{param.replace('/', '_')}.txt"


def _check_name(kind: str, name: str) -> None:
    """Applies MLflow's own rule when a name is recorded, not hours later on delivery."""
    if not is_name(name):
        raise ValueError(
            f"{kind} name {name!r}: use up to 250 letters, digits, spaces, . _ - : and inner /"
        )


def now() -> int:
    """Returns milliseconds since 1970, as MLflow counts."""
    return time.time_ns() // 1_000_000
