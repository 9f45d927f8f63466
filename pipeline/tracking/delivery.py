"""a journal -> its run in an MLflow store: every line once, however often calls fail and processes die."""

import json
import math
import time
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pipeline.runtime.file_lock import folder_lock
from pipeline.storage.atomic_write import sweep_temporaries, write_durably
from pipeline.tracking import versions
from pipeline.tracking.journal import ROWS_PER_LINE, Header, Journal, Line, redact
from pipeline.tracking.store import (
    PATIENCE_SECONDS,
    Unreachable,
    artifacts_of,
    is_server,
    knock,
    open_client,
)
from pipeline.tracking.versions import RUN_KEY_TAG

PARENT_TAG = "mlflow.parentRunId"
PIPELINE_TAG = "quatrain.pipeline"
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Of an experiment: the UI then opens with runs and metrics, not with traces of language models."""
CHANGED_PARAMS_TAG = "quatrain.changed_params"
UPLOAD_RATE = 1e6
"""Bytes a second that a call with a file may take beyond PATIENCE_SECONDS."""
ENTRIES_PER_CALL = 100
"""Params or tags that MLflow takes in one call."""
DIGEST_LENGTH = 36
"""Characters of a dataset's digest that MLflow takes."""
GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow answers to a write to a run that was deleted, among others."""

Item = TypeVar("Item")


class Delivery:
    """Sends one journal to one store, from the last acknowledged line on.

    MLflow drops a row equal to one that it has in name, value, time and step, and a run is found again by its
    key: a call whose answer was lost is made again, a lost cursor starts from the first line, without harm.
    """

    def __init__(self, journal: Journal, uri: str) -> None:
        self.metrics = 0
        self.artifacts = 0
        self.patient_until = math.inf
        self._journal = journal
        self._uri = uri
        self._held = ExitStack()
        self._client: Any = None
        self._run_id: str | None = None
        self._cursor = _read_cursor(journal.folder, redact(uri))

    def step(self) -> bool:
        """Send what fits one call and note that it arrived; False when the store has everything.

        Raises:
            Exception: whatever mlflow, its libraries, the disk or the lock raise; a further call tries again.
        """
        if self._journal.header is None:
            return False
        try:
            run_id = self._run_id or self._open(self._journal.header)
            offset, group = self._next()
            if group:
                self._send(run_id, group)
        except Exception as error:
            known, self._run_id = self._run_id, None
            if (
                known is None
                or getattr(error, "error_code", None) not in GONE
                or self._is_active(known)
            ):
                raise
            return True  # the run was deleted meanwhile: the next step makes another
        self._keep_cursor(run_id, offset)
        return bool(group)

    def pending(self) -> tuple[int, int]:
        """How many metrics and files have not been acknowledged."""
        lines = [line for _, line in self._journal.lines(self._cursor["offset"])]
        files = sum(line["kind"] in ("artifact", "model") for line in lines)
        return sum(len(line.get("rows", ())) for line in lines), files

    def close(self) -> None:
        """Let another process deliver."""
        self._held.close()

    def _open(self, header: Header) -> str:
        folder = self._journal.folder
        self._held.close()
        self._held.enter_context(folder_lock(folder, patience_seconds=0.0))
        sweep_temporaries(folder)
        self.patient_until = time.monotonic() + PATIENCE_SECONDS
        knock(self._uri)
        self.patient_until = math.inf
        self._client = open_client(self._uri)
        run_id = self._cursor["run_id"]
        if run_id is None or not self._is_active(run_id):
            run_id = self._find_or_create(header)
            self._keep_cursor(run_id, 0)
        self._run_id = run_id
        return run_id

    def _next(self) -> tuple[int, list[Line]]:
        """The offset behind the lines of one call, and they: one, or metrics up to what MLflow takes."""
        offset, rows = self._cursor["offset"], 0
        group: list[Line] = []
        for behind, line in self._journal.lines(offset):
            rows += len(line.get("rows", ()))
            alike = not group or line["kind"] == group[0]["kind"] == "metrics"
            if not alike or rows > ROWS_PER_LINE:
                break
            offset = behind
            group.append(line)
        return offset, group

    def _send(self, run_id: str, group: list[Line]) -> None:
        line = group[0]
        if line["kind"] == "begin":
            self._send_header(run_id, line)
        elif line["kind"] == "metrics":
            self._send_metrics(run_id, group)
        elif line["kind"] == "artifact":
            path = self._journal.folder / "artifacts" / line["file"]
            self._call(
                "log_artifact", run_id, str(path), line["path"] or None, size=path.stat().st_size
            )
            self.artifacts += 1
        elif line["kind"] == "model":
            self._send_model(run_id, line)
        elif line["kind"] == "end":
            self._call("set_terminated", run_id, line["status"], line["time"])
            if self._journal.header and self._journal.header.parent:
                self._call(
                    "set_terminated",
                    self._parent(self._journal.header),
                    line["status"],
                    line["time"],
                )
        else:
            self._call("update_run", run_id, "RUNNING")

    def _send_header(self, run_id: str, line: Line) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param, RunTag

        known = self._call("get_run", run_id).data.params
        given = line["params"].items()
        changed = [f"{name} = {value}" for name, value in given if known.get(name, value) != value]
        tags = line["tags"] | ({CHANGED_PARAMS_TAG: ", ".join(changed)} if changed else {})
        for params in _chunks(Param(name, value) for name, value in given if name not in known):
            self._call("log_batch", run_id, params=params, synchronous=True)
        for some in _chunks(RunTag(*item) for item in tags.items()):
            self._call("log_batch", run_id, tags=some, synchronous=True)
        for entry in line["inputs"]:
            source = json.dumps({"uri": entry["source"]})
            dataset = Dataset(entry["name"], entry["digest"][:DIGEST_LENGTH], "local", source)
            context = InputTag("mlflow.data.context", entry["context"])
            self._call("log_inputs", run_id, [DatasetInput(dataset, [context])])

    def _send_metrics(self, run_id: str, group: list[Line]) -> None:
        from mlflow.entities import Metric

        rows = [
            Metric(name, float(value), line["time"], step)
            for line in group
            for name, step, value in line["rows"]
        ]
        self._call("log_batch", run_id, metrics=rows, synchronous=True)
        self.metrics += len(rows)

    def _send_model(self, run_id: str, line: Line) -> None:
        path = self._journal.folder / "artifacts" / line["file"]
        with TemporaryDirectory() as folder:
            zipfile.ZipFile(path).extractall(folder)
            size = path.stat().st_size + UPLOAD_RATE * len([*Path(folder).rglob("*")])
            versions.register(partial(self._call, size=size), run_id, Path(folder), line)
        self.artifacts += 1

    def _find_or_create(self, header: Header) -> str:
        """The run of this key, below that of the whole pipeline."""
        with folder_lock(self._journal.folder.parent):
            parent = {} if header.parent is None else {PARENT_TAG: self._parent(header)}
            return self._found_or_created(header, parent)

    def _parent(self, header: Header) -> str:
        """The pipeline's run; a stage that ends tells it so, for nothing else would if the pipeline is killed."""
        assert header.parent is not None
        return self._found_or_created(
            header._replace(**header.parent._asdict()), {PIPELINE_TAG: "true"}
        )

    def _found_or_created(self, header: Header, tags: dict[str, str]) -> str:
        """The oldest active run of this key; a lost answer to `create_run` makes mlflow ask again: twins."""
        experiment = self._experiment(header.experiment)
        runs = self._find(experiment, header.run_key)
        if not runs:
            start = next(line["time"] for _, line in self._journal.lines())
            tags = {RUN_KEY_TAG: header.run_key, **tags}
            created = self._call("create_run", experiment, start, tags, header.run_name)
            runs = self._find(experiment, header.run_key) or [created]
        for twin in runs[1:]:
            if not twin.data.metrics and not twin.data.params:
                self._call("delete_run", twin.info.run_id)
        return str(runs[0].info.run_id)

    def _find(self, experiment: str, run_key: str) -> list[Any]:
        runs = self._call("search_runs", [experiment], f"tags.`{RUN_KEY_TAG}` = '{run_key}'")
        return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))

    def _experiment(self, name: str) -> str:
        found = self._call("get_experiment_by_name", name)
        if found is None:
            location = artifacts_of(self._uri, self._journal.folder.resolve().parents[2])
            try:
                return str(self._call("create_experiment", name, location and str(location), KIND))
            except Exception:
                found = self._call("get_experiment_by_name", name)  # another process was first
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise Unreachable(f"experiment {name!r} is deleted there; restore it in the UI")
        return str(found.experiment_id)

    def _is_active(self, run_id: str) -> bool:
        try:
            return bool(self._call("get_run", run_id).info.lifecycle_stage == "active")
        except Exception as error:
            if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _call(self, method: str, *arguments: Any, size: int = 0, **named: Any) -> Any:
        """One call of the client, which a stage that ends awaits for a moment only if a server may hang."""
        patience = PATIENCE_SECONDS + size / UPLOAD_RATE
        self.patient_until = time.monotonic() + patience if is_server(self._uri) else math.inf
        return getattr(self._client, method)(*arguments, **named)

    def _keep_cursor(self, run_id: str, offset: int) -> None:
        cursor = {"uri": redact(self._uri), "run_id": run_id, "offset": offset}
        if cursor != self._cursor:
            write_durably(self._journal.folder / "cursor.json", json.dumps(cursor).encode())
            self._cursor = cursor


def _read_cursor(folder: Path, uri: str) -> dict[str, Any]:
    """What was delivered to `uri`; nothing if the last delivery went elsewhere or its note cannot be read."""
    nothing = {"uri": uri, "run_id": None, "offset": 0}
    try:
        cursor = json.loads((folder / "cursor.json").read_bytes())
    except (OSError, ValueError):
        return nothing
    known = isinstance(cursor, dict) and cursor.keys() == nothing.keys() and cursor["uri"] == uri
    return cursor if known else nothing


def _chunks(items: Iterable[Item]) -> list[list[Item]]:
    listed = list(items)
    return [listed[i : i + ENTRIES_PER_CALL] for i in range(0, len(listed), ENTRIES_PER_CALL)]
