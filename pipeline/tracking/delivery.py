"""a journal -> its run in an MLflow store: every line once, even if calls fail or processes die."""

import json
import math
import time
import zipfile
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.runtime.file_lock import folder_lock
from pipeline.runtime.redaction import shown
from pipeline.tracking import experiment, model_registry, run_times
from pipeline.tracking.journal import HISTORY, ROWS_PER_LINE, Header, Journal, Line
from pipeline.tracking.run_times import PARENT_TAG
from pipeline.tracking.store import (
    PATIENCE_SECONDS,
    artifacts_of,
    check_reachable,
    is_server,
    open_client,
)
from quatrain.storage.atomic_write import sweep_temporaries, write_durably

CHANGED_PARAMS_TAG = "quatrain.changed_params"
# Bytes per second that a call with a file may take in addition to PATIENCE_SECONDS.
UPLOAD_RATE = 1e6
# Params or tags that MLflow takes in one call.
ENTRIES_PER_CALL = 100
# Characters of a dataset's digest that MLflow takes.
DIGEST_LENGTH = 36
# Error codes of a write to a deleted run; other failures have them, too.
DELETED_RUN_CODES = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


class Delivery:
    """Sends one journal to one store, from the last acknowledged line on.

    Repeating a call whose reply was lost does no harm: MLflow's SQL stores drop a metric equal to a
    stored one in name, value, time and step, and a run is found by its key.
    """

    def __init__(self, journal: Journal, uri: str) -> None:
        self.metrics = 0
        self.artifacts = 0
        self.patient_until = math.inf
        """Time until which a stage that ends should wait for the call in progress."""
        self._journal = journal
        self._uri = uri
        self._lock = ExitStack()
        self._client: Any = None
        self._run_id: str | None = None
        self._cursor = _read_cursor(journal.folder, shown(uri))

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
        except Exception as error:
            last_run_id = self._run_id
            self._run_id = None
            may_be_deleted = getattr(error, "error_code", None) in DELETED_RUN_CODES
            if last_run_id is not None and may_be_deleted and not self._is_active(last_run_id):
                return True  # The next step creates another run.
            raise
        self._keep_cursor(run_id, offset)
        return bool(group)

    def pending(self) -> tuple[int, int]:
        """Returns how many metrics and files are not acknowledged."""
        lines = [line for _, line in self._journal.lines(self._cursor["offset"])]
        rows = [row for line in lines for row in line.get("rows", ())]
        return (
            sum(not name.startswith(HISTORY) for name, _, _ in rows),
            sum(line["kind"] in ("artifact", "model") for line in lines),
        )

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
        run_id = self._cursor["run_id"]
        if run_id is None or not self._is_active(run_id):
            run_id = self._find_or_create(header)
            self._keep_cursor(run_id, 0)
        self._run_id = run_id
        return run_id

    def _next(self) -> tuple[int, list[Line]]:
        """Returns the lines of the next call and the offset after them.

        Metrics are sent together up to MLflow's limit, any other line alone.
        """
        offset = self._cursor["offset"]
        rows = 0
        group: list[Line] = []
        for next_offset, line in self._journal.lines(offset):
            rows += len(line.get("rows", ()))
            fits = not group or line["kind"] == group[0]["kind"] == "metrics"
            if not fits or rows > ROWS_PER_LINE:
                break
            offset = next_offset
            group.append(line)
        return offset, group

    def _send(self, run_id: str, group: list[Line]) -> None:
        line = group[0]
        match line["kind"]:
            case "begin":
                self._send_params(run_id, line)
                self._send_inputs(run_id, line)
            case "tags":
                self._send_tags(run_id, line["tags"])
            case "card":
                model_registry.describe(self._call, run_id, line["name"], line["text"])
            case "metrics":
                self._send_metrics(run_id, group)
            case "artifact":
                path = self._journal.folder / "artifacts" / line["file"]
                self._call(
                    "log_artifact",
                    run_id,
                    str(path),
                    line["path"] or None,
                    size=path.stat().st_size,
                )
                self.artifacts += 1
            case "model":
                self._send_model(run_id, line)
            case "end":
                self._end(run_id, line["status"])
            case _:
                self._call("update_run", run_id, "RUNNING")

    def _end(self, run_id: str, status: str) -> None:
        part = run_times.part_of(self._journal.folder.name)
        seconds = run_times.worked_seconds(line for _, line in self._journal.lines())
        end = run_times.end_run(self._call, run_id, part, seconds, status)
        header = self._journal.header
        if header and header.parent and header.parent.ends_with_child:
            parent_id = self._find_or_create_parent(header)
            run_times.end_parent(self._call, parent_id, status, end)

    def _send_params(self, run_id: str, line: Line) -> None:
        """Sends params and tags; a param that has another value already goes into a tag."""
        from mlflow.entities import Param

        existing = self._call("get_run", run_id).data.params
        params = []
        changed = []
        for name, value in line["params"].items():
            if name not in existing:
                params.append(Param(name, value))
            elif existing[name] != value:
                changed.append(f"{name} = {value}")
        for start in range(0, len(params), ENTRIES_PER_CALL):
            chunk = params[start : start + ENTRIES_PER_CALL]
            self._call("log_batch", run_id, synchronous=True, params=chunk)
        tags = {CHANGED_PARAMS_TAG: ", ".join(changed)} if changed else {}
        self._send_tags(run_id, line["tags"] | tags)

    def _send_tags(self, run_id: str, tags: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        entries = [RunTag(*item) for item in tags.items()]
        for start in range(0, len(entries), ENTRIES_PER_CALL):
            chunk = entries[start : start + ENTRIES_PER_CALL]
            self._call("log_batch", run_id, synchronous=True, tags=chunk)

    def _send_inputs(self, run_id: str, line: Line) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        for entry in line["inputs"]:
            dataset = Dataset(
                name=entry["name"],
                digest=entry["digest"][:DIGEST_LENGTH],
                source_type="local",
                source=json.dumps({"uri": entry["source"]}),
            )
            self._call(
                "log_inputs",
                run_id,
                [DatasetInput(dataset, [InputTag("mlflow.data.context", entry["context"])])],
            )

    def _send_metrics(self, run_id: str, group: list[Line]) -> None:
        from mlflow.entities import Metric

        rows = [
            Metric(name, float(value), line["time"], step)
            for line in group
            for name, step, value in line["rows"]
            if not name.startswith(HISTORY)
        ]
        if rows:
            self._call("log_batch", run_id, metrics=rows, synchronous=True)
        self.metrics += len(rows)

    def _send_model(self, run_id: str, line: Line) -> None:
        path = self._journal.folder / "artifacts" / line["file"]
        with TemporaryDirectory() as folder:
            zipfile.ZipFile(path).extractall(folder)
            size = path.stat().st_size + UPLOAD_RATE * len([*Path(folder).rglob("*")])
            model_registry.register(partial(self._call, size=size), run_id, Path(folder), line)
        self.artifacts += 1

    def _find_or_create(self, header: Header) -> str:
        with folder_lock(self._journal.folder.parent):
            has_parent = header.parent is not None
            tags = {PARENT_TAG: self._find_or_create_parent(header)} if has_parent else {}
            return self._oldest_or_new(header, tags)

    def _find_or_create_parent(self, header: Header) -> str:
        parent = header.parent
        assert parent is not None
        of_parent = header._replace(run_key=parent.run_key, run_name=parent.run_name)
        tags = run_times.tags_of_parent(header) | {parent.tag: "true"}
        return self._oldest_or_new(of_parent, tags)

    def _oldest_or_new(self, header: Header, tags: dict[str, str]) -> str:
        """Returns the oldest active run of this key, or a new one.

        MLflow may create duplicate runs when a reply is lost: deletes empty duplicates.
        """
        experiment_id = self._experiment(header.experiment)
        runs = self._find(experiment_id, header.run_key)
        if not runs:
            start = next(line["time"] for _, line in self._journal.lines())
            tags = {model_registry.RUN_KEY_TAG: header.run_key, **tags}
            created = self._call("create_run", experiment_id, start, tags, header.run_name)
            runs = self._find(experiment_id, header.run_key) or [created]
        for duplicate in runs[1:]:
            if not duplicate.data.metrics and not duplicate.data.params:
                self._call("delete_run", duplicate.info.run_id)
        return str(runs[0].info.run_id)

    def _find(self, experiment_id: str, run_key: str) -> list[Any]:
        query = f"tags.`{model_registry.RUN_KEY_TAG}` = '{run_key}'"
        return sorted(
            self._call("search_runs", [experiment_id], query),
            key=lambda run: (run.info.start_time, run.info.run_id),
        )

    def _experiment(self, name: str) -> str:
        folder = artifacts_of(self._uri, _checkout_of(self._journal.folder.resolve()))
        return experiment.find_or_create(self._call, name, folder)

    def _is_active(self, run_id: str) -> bool:
        try:
            return bool(self._call("get_run", run_id).info.lifecycle_stage == "active")
        except Exception as error:
            if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _call(self, method: str, *arguments: Any, size: int = 0, **named: Any) -> Any:
        """Calls a method of the client; only calls to a server limit how long a stage waits."""
        seconds = PATIENCE_SECONDS + size / UPLOAD_RATE if is_server(self._uri) else math.inf
        self.patient_until = time.monotonic() + seconds
        return getattr(self._client, method)(*arguments, **named)

    def _keep_cursor(self, run_id: str, offset: int) -> None:
        cursor = {"uri": shown(self._uri), "run_id": run_id, "offset": offset}
        if cursor != self._cursor:
            write_durably(self._journal.folder / "cursor.json", json.dumps(cursor).encode())
            self._cursor = cursor


def _checkout_of(folder: Path) -> Path:
    """Returns the folder that holds `.state`, in which all journals are."""
    return next((each.parent for each in folder.parents if each.name == ".state"), folder)


def _read_cursor(folder: Path, uri: str) -> dict[str, Any]:
    """Returns what was delivered to `uri`; a cursor at the start for another or a damaged file."""
    start = {"uri": uri, "run_id": None, "offset": 0}
    with suppress(OSError, ValueError):
        cursor = json.loads((folder / "cursor.json").read_bytes())
        if isinstance(cursor, dict) and cursor.keys() == start.keys() and cursor["uri"] == uri:
            return cursor
    return start
