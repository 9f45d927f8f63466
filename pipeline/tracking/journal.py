"""params, metrics, files and status of a run -> lines on the disk, from which tracking delivers them."""

import io
import json
import math
import operator
import os
import posixpath
import re
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.storage.atomic_write import crash_point, sweep_temporaries, write_durably
from quatrain.errors import DataError

ROWS_PER_LINE = 1000
"""What MLflow takes in one call."""
LONGEST_PARAM = 6000
"""Characters; MLflow cuts the rest off."""
STATUSES = ("FINISHED", "FAILED", "KILLED")

Row = tuple[str, int, float]
Line = dict[str, Any]

_NAME = re.compile(r"[\w.\- /:]{1,250}")
_RUN_KEY = re.compile(r"[\w.@-]{1,250}")
# The second form is a password with a bare slash, which database URIs may have and a host's port cannot.
_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#]*|[^\s/@:]*:(?!\d*[/?#])\S*)@")
_SECRET = re.compile(r"(?i)(?<=[?&])(password|passwd|token|secret|api_key)=[^&\s]+")


class DatasetInput(NamedTuple):
    """What a run read: `context` says what for (train, evaluate), `source` where it lies."""

    name: str
    digest: str
    context: str
    source: str


class Parent(NamedTuple):
    """The run of the whole pipeline, by the key under which all stages find it."""

    run_key: str
    run_name: str


class Header(NamedTuple):
    """What is known of a run before it starts; journals with one `run_key` describe one MLflow run."""

    run_key: str
    experiment: str
    run_name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    inputs: tuple[DatasetInput, ...] = ()
    parent: Parent | None = None


class Journal:
    """One stage's record of a run. One process writes it; any may read it.

    Raises:
        DataError: a line that is not the last one cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header: Header | None = None
        self._path = folder / "journal.jsonl"
        self._descriptor: int | None = None
        self._end = 0
        self._torn = (
            True  # until the first write has cut off what a kill in mid-write may have left
        )
        self._over = False
        self.has_model = False
        """Whether what serves the run's model is kept, to be registered."""
        self._points: dict[str, dict[int, float]] = {}
        self._files: dict[tuple[str, str], str] = {}
        self._load()

    def begin(self, header: Header) -> None:
        """Start the run, or go on with it: the first header stays. Passwords inside URIs are left out.

        Raises:
            ValueError: a name that MLflow refuses, or a folder that holds another run.
        """
        if not _RUN_KEY.fullmatch(header.run_key):
            raise ValueError(f"run key {header.run_key!r}: use letters, digits and . _ @ - only")
        for kind, names in (("param", header.params), ("tag", header.tags)):
            for name in names:
                _check_name(kind, name)
        if self.header is None:
            self._append([_begin_line(header)])
        elif self.header.run_key != header.run_key:
            held = self.header.run_key
            raise ValueError(
                f"{self.folder} holds run {held}, not {header.run_key}; use another folder"
            )
        elif self._over:
            self._append([{"kind": "resume", "time": _now()}])
        for name, value in header.params.items():
            if len(value) > LONGEST_PARAM:
                self._keep(_file_of(name), redact(value).encode(), "params")

    def metrics(self, rows: Iterable[Row]) -> None:
        """Write (name, step, value) with the time of now; a (name, step) written before keeps time and value.

        A resumed training repeats the steps since its checkpoint, and MLflow tells a repetition from a new
        value by its timestamp alone.
        """
        new: dict[tuple[str, int], float | str] = {}
        for name, step, value in rows:
            _check_name("metric", name)
            key = (name, operator.index(step))
            if key not in new and key[1] not in self._points.get(name, {}):
                new[key] = float(value) if math.isfinite(value) else str(float(value))
        encoded = [[*key, value] for key, value in new.items()]
        chunks = [encoded[i : i + ROWS_PER_LINE] for i in range(0, len(encoded), ROWS_PER_LINE)]
        stamp = _now()
        self._append([{"kind": "metrics", "time": stamp, "rows": chunk} for chunk in chunks])

    def artifact(self, path: Path, artifact_path: str = "") -> None:
        """Copy a file, to be shipped into the run's folder `artifact_path`, unless it is there unchanged."""
        self._keep(path.name, path.read_bytes(), artifact_path)

    def model(self, folder: Path, name: str) -> None:
        """Copy a folder that MLflow can serve, to be registered as a version of the model `name`; once in a run."""
        if not self.has_model:
            file = self._copy(f"{name}.zip", zipped(folder))
            self._append([{"kind": "model", "name": name, "file": file, "time": _now()}])

    def end(self, status: str) -> None:
        """Note how the run ended; if it is continued, a later end counts."""
        if status not in STATUSES:
            raise ValueError(f"status {status!r}: use one of {', '.join(STATUSES)}")
        self._append([{"kind": "end", "status": status, "time": _now()}])

    def history(self) -> dict[str, list[tuple[int, float]]]:
        """Metric name -> (step, value) in the order of writing, every float as it was given."""
        return {name: list(points.items()) for name, points in self._points.items()}

    def lines(self, offset: int = 0) -> Iterator[tuple[int, Line]]:
        """Each whole line from byte `offset` on, with the offset behind it."""
        if offset >= self._end:
            return
        with self._path.open("rb") as file:
            file.seek(offset)
            while offset < self._end:
                raw = file.readline()
                offset += len(raw)
                yield offset, json.loads(raw)

    def close(self) -> None:
        """Give the file back; a later write opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _load(self) -> None:
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                line = _parsed(raw)
                if line is None and file.read(1):
                    raise DataError(
                        f"{self._path} line {number}: cannot be read; move its folder away"
                    )
                if line is None:
                    return
                self._end += len(raw)
                self._note(line)

    def _note(self, line: Line) -> None:
        if line["kind"] == "metrics":
            for name, step, value in line["rows"]:
                self._points.setdefault(name, {})[step] = float(value)
        elif line["kind"] == "artifact":
            self._files[line["path"], posixpath.basename(line["file"])] = line["file"]
        elif line["kind"] == "begin":
            self.header = _header(line)
        elif line["kind"] == "model":
            self.has_model = True
        self._over = line["kind"] == "end"

    def _append(self, lines: list[Line]) -> None:
        if not lines:
            return
        if not self._path.is_file():
            write_durably(self._path, b"")
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if self._torn:
            os.ftruncate(self._descriptor, self._end)
        self._torn = True
        data = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
        try:
            left = memoryview(data)
            while left:
                left = left[crash_point(os.write, self._descriptor, left) :]
            crash_point(os.fsync, self._descriptor)
        except OSError as error:
            error.filename = os.fspath(self._path)
            raise
        self._torn = False
        for line in lines:
            self._note(line)
        self._end += len(data)

    def _keep(self, name: str, data: bytes, artifact_path: str) -> None:
        old = self._files.get((artifact_path, name))
        if old is not None and (self.folder / "artifacts" / old).read_bytes() == data:
            return
        self._append([{"kind": "artifact", "file": self._copy(name, data), "path": artifact_path}])

    def _copy(self, name: str, data: bytes) -> str:
        """Keep bytes under the journal's `artifacts`, by their digest."""
        digest = sha256(data).hexdigest()[:16]
        copy = self.folder / "artifacts" / digest / name
        write_durably(copy, data)
        sweep_temporaries(copy.parent)
        return f"{digest}/{name}"


def zipped(folder: Path) -> bytes:
    """All files of a folder in one, so that they are kept whole or not at all."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return out.getvalue()


def redact(text: str) -> str:
    """The text with user names and passwords taken out of its URIs."""
    return _SECRET.sub(r"\1=***", _USERINFO.sub("", text))


def _begin_line(header: Header) -> Line:
    """JSON of a header; a parameter too long for MLflow is named by its digest and goes along as a file."""
    line = header._asdict()
    line["params"] = {name: _short(name, value) for name, value in header.params.items()}
    line["tags"] = {name: redact(value) for name, value in header.tags.items()}
    line["inputs"] = [
        entry._replace(source=redact(entry.source))._asdict() for entry in header.inputs
    ]
    line["parent"] = header.parent and header.parent._asdict()
    return {"kind": "begin", "time": _now(), **line}


def _header(line: Line) -> Header:
    """What `_begin_line` wrote; journals of before know no parent."""
    plain = {name: line[name] for name in ("run_key", "experiment", "run_name", "params", "tags")}
    parent = line.get("parent")
    inputs = tuple(DatasetInput(**entry) for entry in line["inputs"])
    return Header(**plain, inputs=inputs, parent=parent and Parent(**parent))


def _short(name: str, value: str) -> str:
    if len(value) <= LONGEST_PARAM:
        return redact(value)
    digest = sha256(value.encode()).hexdigest()
    return f"{len(value)} characters, sha256 {digest}: whole in artifact params/{_file_of(name)}"


def _file_of(param: str) -> str:
    return f"{param.replace('/', '_')}.txt"


def _check_name(kind: str, name: str) -> None:
    """MLflow's own rule, applied where the mistake is made and not hours later where it is delivered."""
    path = posixpath.normpath(name)
    if not _NAME.fullmatch(name) or path != name or path.startswith(("/", "..")) or path == ".":
        raise ValueError(
            f"{kind} name {name!r}: use up to 250 letters, digits, spaces, . _ - : and inner /"
        )


def _parsed(raw: bytes) -> Line | None:
    """The line, or None where a kill or a power cut left half of one."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _now() -> int:
    """Milliseconds since 1970, as MLflow counts."""
    return time.time_ns() // 1_000_000
