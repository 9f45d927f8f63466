"""an outbox -> its run in an MLflow store: every record once, even if calls fail or processes die.

Repeating a call whose reply was lost does no harm: MLflow's SQL stores drop a metric equal to a
stored one in name, value, time and step, and a run is found by its key.
"""

import io
import json
import math
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.runtime.processes import folder_lock
from pipeline.storage.params_file import checkout_of
from pipeline.tracking import registry
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Header, Point, Record
from pipeline.tracking.store import (
    PATIENCE_SECONDS,
    UPLOAD_RATE,
    Unreachable,
    artifacts_of,
    check_reachable,
    is_server,
    open_client,
)

CHANGED_PARAMS_TAG = "quatrain.changed_params"
PARENT_TAG = "mlflow.parentRunId"
# Makes the UI open with runs and metrics, not with traces of language models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
# Metrics, and params or tags, that MLflow takes in one call.
METRICS_PER_CALL = 1000
ENTRIES_PER_CALL = 100
# Characters of a dataset's digest that MLflow takes.
DIGEST_LENGTH = 36
# Statuses of a run that has not ended.
OPEN = ("RUNNING", "SCHEDULED")
# Error codes of a run that a store does not have; it gives the second for an ID that is none.
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


class Delivery:
    """Sends one outbox to one store, as far as it is not sent yet.

    is_checked: whether the store is asked first if it still holds what it acknowledged; if not, all
    is sent again. from_start: whether all is sent again in any case.
    """

    def __init__(
        self, outbox: Outbox, uri: str, is_checked: bool = False, from_start: bool = False
    ) -> None:
        self.outbox = outbox
        self.metrics = 0
        self.files = 0
        self.patient_until = math.inf
        """Time until which a stage that ends waits for the call in progress."""
        self._uri = uri
        self._is_checked = is_checked
        self._from_start = from_start
        self._lock = ExitStack()
        self._client: Any = None
        self._run_id: str | None = None

    def send(self) -> Exception | None:
        """Sends all there is; returns what failed, after which it may be called again."""
        try:
            while self.step():
                pass
        except Exception as error:
            self.close()
            return error
        return None

    def step(self) -> bool:
        """Sends what fits one call; returns False if the store has everything.

        Raises:
            LockHeld: another process delivers this outbox.
            Unreachable: the store does not answer, or its experiment is deleted.
            Exception: any other error of mlflow, its libraries or the disk.
        """
        header = self.outbox.header
        if header is None:
            return False
        run_id = self._run_id or self._open(header)
        begin = self.outbox.record("begin")
        points = self.outbox.next_points(METRICS_PER_CALL) if begin and begin.sent else []
        if points:
            self._send_metrics(run_id, points)
            self.outbox.mark_sent(points[-1])
            self.metrics += len(points)
            return True
        record = self.outbox.next_record()
        if record is not None:
            self._send(run_id, header, record)
            self.outbox.mark_sent(record)
            self.files += record.kind in ("artifact", "model")
        return record is not None

    def close(self) -> None:
        """Releases the lock, so that another process can deliver."""
        self._run_id = None
        self._lock.close()

    # The run.

    def _open(self, header: Header) -> str:
        """Returns the ID of the run; finds or creates it, and resets what was sent elsewhere."""
        folder = self.outbox.path.parent
        self._lock.close()
        self._lock.enter_context(folder_lock(folder / "locks" / f"{self.outbox.name}-delivery", 0))
        self.patient_until = time.monotonic() + PATIENCE_SECONDS
        check_reachable(self._uri)
        self.patient_until = math.inf
        self._client = open_client(self._uri)
        destination = self.outbox.record("destination")
        is_elsewhere = destination is None or destination.name != self._uri
        run = None if is_elsewhere or destination is None else self._run_of(destination.body)
        if run is None:
            with folder_lock(folder):
                run_id = self._find_or_create(header)
        else:
            run_id = str(run.info.run_id)
        if run is None or self._from_start or (self._is_checked and self._has_lost(run)):
            self.outbox.send_all_to(self._uri, run_id)
        self._from_start = self._is_checked = False
        self._run_id = run_id
        return run_id

    def _run_of(self, run_id: str) -> Any:
        """Returns a run of the store; None if it is deleted, or was never there."""
        try:
            run = self._call("get_run", run_id)
        except Exception as error:
            if getattr(error, "error_code", None) in ABSENT:
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None

    def _has_lost(self, run: Any) -> bool:
        """Returns whether a run lacks the last steps or the end that the store acknowledged, as in
        one restored from an older backup.
        """
        stored = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        end = self.outbox.record("end")
        ended = end.time if end is not None and end.sent else 0
        is_open = run.info.status in OPEN or (run.info.end_time or 0) < ended
        return (ended > 0 and is_open) or any(
            stored.get(name, -math.inf) < step for name, step in self.outbox.last_sent().items()
        )

    def _find_or_create(self, header: Header, tags: Mapping[str, str] | None = None) -> str:
        """Returns the oldest run of a key, or a new one below that of its pipeline or sweep.

        MLflow may create duplicate runs when a reply is lost: deletes empty duplicates.
        """
        experiment = self._find_or_create_experiment(header.experiment)
        query = f"tags.`{registry.RUN_KEY_TAG}` = '{header.run_key}'"
        find = partial(self._call, "search_runs", [experiment], query)
        runs = find()
        if not runs:
            tags = {registry.RUN_KEY_TAG: header.run_key, **(tags or {})}
            if header.parent is not None:
                tags[PARENT_TAG] = self._find_or_create(*_above(header))
            begin = self.outbox.record("begin")
            start = begin and begin.time
            self._call("create_run", experiment, start, tags, header.run_name)
            runs = find()
        oldest, *others = sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))
        for run in others:
            if not run.data.metrics and not run.data.params:
                self._call("delete_run", run.info.run_id)
        return str(oldest.info.run_id)

    def _find_or_create_experiment(self, name: str) -> str:
        experiment = self._call("get_experiment_by_name", name)
        if experiment is None:
            folder = artifacts_of(self._uri, checkout_of(_workspace_of(self.outbox.path)))
            arguments = (name, folder and str(folder), EXPERIMENT_TAGS)
            try:
                return str(self._call("create_experiment", *arguments))
            except Exception:
                experiment = self._call("get_experiment_by_name", name)  # another created it
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            raise Unreachable(f"experiment {name!r} is deleted there; restore it in the UI")
        return str(experiment.experiment_id)

    # Its records.

    def _send(self, run_id: str, header: Header, record: Record) -> None:
        name = record.name
        match record.kind:
            case "begin":
                self._send_header(run_id, header)
            case "tag":
                self._call("set_tag", run_id, name, record.body)
            case "artifact":
                self._send_file(run_id, record)
            case "model":
                self._send_model(run_id, record)
            case "card":
                registry.describe(self._call, run_id, name, record.body)
            case "end":
                self._terminate(run_id, record)
                if header.parent is not None and header.parent.ends_with_child:
                    self._terminate(self._find_or_create(*_above(header)), record)

    def _send_header(self, run_id: str, header: Header) -> None:
        """Sends params, tags and datasets; a param that has another value already is a tag."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param, RunTag

        stored = self._call("get_run", run_id).data.params
        changed = [f"{k} = {v}" for k, v in header.params.items() if stored.get(k, v) != v]
        tags = {**header.tags, **({CHANGED_PARAMS_TAG: ", ".join(changed)} if changed else {})}
        params = [Param(*item) for item in header.params.items() if item[0] not in stored]
        for chunk in _chunks(params):
            self._call("log_batch", run_id, synchronous=True, params=chunk)
        for chunk in _chunks([RunTag(*item) for item in tags.items()]):
            self._call("log_batch", run_id, synchronous=True, tags=chunk)
        for entry in header.inputs:
            source = json.dumps({"uri": entry.source})
            dataset = Dataset(entry.name, entry.digest[:DIGEST_LENGTH], "local", source)
            context = InputTag("mlflow.data.context", entry.context)
            self._call("log_inputs", run_id, [DatasetInput(dataset, [context])])
        if self.outbox.record("end") is None:
            self._call("update_run", run_id, "RUNNING")

    def _send_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        rows = [Metric(each.name, each.value, each.time, each.step) for each in points]
        self._call("log_batch", run_id, metrics=rows, synchronous=True)

    def _send_file(self, run_id: str, record: Record) -> None:
        folder, _, file = record.name.rpartition("/")
        data = record.data or b""
        with TemporaryDirectory() as temporary:
            path = Path(temporary) / file
            path.write_bytes(data)
            self._call("log_artifact", run_id, str(path), folder or None, size=len(data))

    def _send_model(self, run_id: str, record: Record) -> None:
        """Registers the model in an archive; each of its files may take a second of its own."""
        data = record.data or b""
        with TemporaryDirectory() as folder:
            zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
            size = len(data) + UPLOAD_RATE * len([*Path(folder).rglob("*")])
            registry.register(partial(self._call, size=size), run_id, Path(folder), record)

    def _terminate(self, run_id: str, end: Record) -> None:
        """Ends a run, unless another part of it has ended later."""
        info = self._call("get_run", run_id).info
        last = max(end.time, info.end_time or 0)
        if info.status in OPEN or last == end.time:
            self._call("set_terminated", run_id, end.body, last)

    def _call(self, method: str, *arguments: Any, size: float = 0, **named: Any) -> Any:
        """Calls a method of the client; only calls to a server limit how long a stage waits."""
        seconds = PATIENCE_SECONDS + size / UPLOAD_RATE if is_server(self._uri) else math.inf
        self.patient_until = time.monotonic() + seconds
        try:
            return self._client.call(method, *arguments, size=size, **named)
        finally:
            self.patient_until = math.inf


def _above(header: Header) -> tuple[Header, dict[str, str]]:
    """Returns the header and the tags of the run of a pipeline or sweep, which children share."""
    assert header.parent is not None
    shared = ("quatrain.preset", "quatrain.seed", "quatrain.params", "mlflow.user")
    tags = {name: text for name, text in header.tags.items() if name in shared or "git." in name}
    key, name, tag, _ = header.parent
    return header._replace(run_key=key, run_name=name, parent=None), tags | {tag: "true"}


def _chunks(entries: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(entries), ENTRIES_PER_CALL):
        yield entries[start : start + ENTRIES_PER_CALL]


def _workspace_of(path: Path) -> Path:
    """Returns the folder that holds `.state`, in which all outboxes are."""
    return next((each.parent for each in path.resolve().parents if each.name == ".state"), path)
