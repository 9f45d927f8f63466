"""an outbox -> its run in an MLflow store: every record once, even if calls fail or processes die.

Repeating a call whose reply was lost does no harm: MLflow's SQL stores drop a metric equal to a
stored one in name, value, time and step, and a run is found by its key.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.runtime.processes import folder_lock
from pipeline.storage.params_file import checkout_of
from pipeline.tracking import registry
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import VIEW, VIEW_TAG, Header, Point, Record, drawn_as
from pipeline.tracking.store import UPLOAD_RATE, Unreachable, artifacts_of, open_client
from quatrain.errors import DataError

CHANGED_PARAMS_TAG = "quatrain.changed_params"
PARENT_TAG = "mlflow.parentRunId"
# Makes the UI open with runs and metrics, not with traces of language models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development", VIEW_TAG: json.dumps(VIEW)}
# What MLflow takes in one call.
METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100
# Characters of a dataset's digest that MLflow takes.
DIGEST_LENGTH = 36
# Statuses of a run that has not ended.
OPEN = ("RUNNING", "SCHEDULED")
# Outboxes in a row that may get no answer before the others are left for later.
MOST_UNANSWERED = 3


class Delivery:
    """Sends one outbox to one store, as far as it is not sent yet.

    All is sent again if the store has lost what it acknowledged, which is asked at the start and
    after a failure. from_start: whether all is sent again in any case.
    """

    def __init__(self, outbox: Outbox, uri: str, from_start: bool = False) -> None:
        self.outbox = outbox
        self.metrics = 0
        self.files = 0
        self.is_done = False
        """Whether the store has all of an outbox that had ended."""
        self._uri = uri
        self._from_start = from_start
        self._call: Any = None
        self._run_id: str | None = None

    def send(self) -> Exception | None:
        """Sends all there is; returns what failed, after which it may be called again.

        A LockHeld says that another process delivers this outbox, an Unreachable that the store
        does not answer, or that its experiment is deleted.
        """
        locks = self.outbox.path.parent / "locks"
        try:
            with folder_lock(locks / f"{self.outbox.name}-delivery", patience_seconds=0):
                self._run_id = self._run_id if self._is_sent_to(self._run_id) else None
                has_ended = self.outbox.has("end")
                while self.step():
                    pass
                self.is_done = has_ended
        except Exception as error:
            self._run_id = None
            return error
        return None

    def step(self) -> bool:
        """Sends what fits one call; returns False if the store has everything."""
        header = self.outbox.header
        if header is None:
            return False
        run_id = self._run_id or self._open(header)
        record = self.outbox.next_record()
        points = self.outbox.next_points(METRICS_PER_CALL)
        if points and (record is None or record.kind != "begin"):
            self._send_metrics(run_id, points)
            self.outbox.mark_sent(points[-1])
            self.metrics += len(points)
        elif record is not None:
            self._send(run_id, header, record)
            self.outbox.mark_sent(record)
            self.files += record.kind in ("artifact", "model")
        return bool(points or record)

    # The run.

    def _open(self, header: Header) -> str:
        """Returns the ID of the run; finds or creates it, and resets what was sent elsewhere."""
        self._call = open_client(self._uri).call
        with folder_lock(self.outbox.path.parent):
            run = self._find_or_create(header)
        run_id = str(run.info.run_id)
        if self._from_start or not self._is_sent_to(run_id) or self._has_lost(run):
            self.outbox.set_destination(self._uri, run_id)
        self._from_start = False
        self._run_id = run_id
        return run_id

    def _is_sent_to(self, run_id: str | None) -> bool:
        """Returns whether the marks of what is sent are those of this store and run."""
        destination = self.outbox.record("destination")
        place = destination and (destination.name, destination.body)
        return place == (self._uri, run_id)

    def _has_lost(self, run: Any) -> bool:
        """Returns whether a run lacks the last steps or the end that the store acknowledged, as in
        one restored from an older backup.

        An evaluation that adds to the run opens it again, and leaves the time of its end.
        """
        end = self.outbox.record("end")
        if end is not None and end.sent and (run.info.end_time or 0) < end.time:
            return True
        stored = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        return any(
            stored.get(drawn_as(name), -math.inf) < step
            for name, step in self.outbox.last_sent().items()
        )

    def _find_or_create(self, header: Header, tags: Mapping[str, str] | None = None) -> Any:
        """Returns the oldest run of a key, or a new one below that of its pipeline or group.

        MLflow may create duplicate runs when a reply is lost or late: an empty one is deleted.
        """
        experiment = self._find_or_create_experiment(header.experiment)
        query = f"tags.`{registry.RUN_KEY_TAG}` = '{header.run_key}'"
        find = partial(self._call, "search_runs", [experiment], query)
        runs = find()
        if not runs:
            tags = {registry.RUN_KEY_TAG: header.run_key, **(tags or {})}
            if header.parent is not None:
                tags[PARENT_TAG] = self._find_or_create(*_above(header)).info.run_id
            self._call("create_run", experiment, self.outbox.begun_at, tags, header.run_name)
            runs = find()

        def is_empty(run: Any) -> bool:
            return not (run.data.metrics or run.data.params or run.info.end_time)

        first, *others = sorted(
            runs, key=lambda run: (is_empty(run), run.info.start_time, run.info.run_id)
        )
        for run in filter(is_empty, others):
            self._call("delete_run", run.info.run_id)
        return first

    def _find_or_create_experiment(self, name: str) -> str:
        experiment = self._call("get_experiment_by_name", name)
        # The folder that holds `.state`, in which all outboxes are.
        parents = self.outbox.path.resolve().parents
        work = next((each.parent for each in parents if each.name == ".state"), parents[0])
        folder = artifacts_of(self._uri, checkout_of(work))
        if experiment is None:
            place = folder and str(folder)
            return str(self._call("create_experiment", name, place, EXPERIMENT_TAGS))
        if experiment.lifecycle_stage != "active":
            raise Unreachable(f"experiment {name!r} is deleted there; restore it in the UI")
        for tag in EXPERIMENT_TAGS.keys() - experiment.tags.keys():
            self._call("set_experiment_tag", experiment.experiment_id, tag, EXPERIMENT_TAGS[tag])
        there = Path(experiment.artifact_location)
        if folder and there.parts[-2:] == folder.parts[-2:] and there.resolve() != folder.resolve():
            raise Unreachable(
                f"the store is a copy, or was moved: it keeps files of runs in {there}; remove "
                f"{folder.parent}, and `make sync` sends all runs to a new one"
            )
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
                self._send_model(run_id, header, record)
            case "card":
                registry.describe(self._call, run_id, name, record.body)
            case "version":
                registry.tag_version(self._call, run_id, name, json.loads(record.body))
            case "end":
                self._terminate(run_id, record)
                if header.parent is not None and header.parent.ends_with_child:
                    parent = self._find_or_create(*_above(header))
                    self._terminate(parent.info.run_id, record)

    def _send_header(self, run_id: str, header: Header) -> None:
        """Sends params, tags and datasets; a param that has another value already is a tag."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param, RunTag

        run = self._call("get_run", run_id)
        stored = run.data.params
        changed = [f"{k} = {v}" for k, v in header.params.items() if stored.get(k, v) != v]
        params = [Param(*item) for item in header.params.items() if item[0] not in stored]
        for start in range(0, len(params), PARAMS_PER_CALL):
            chunk = params[start : start + PARAMS_PER_CALL]
            self._call("log_batch", run_id, params=chunk, synchronous=True)
        tags = [RunTag(*item) for item in header.tags.items()]
        if changed:
            tags.append(RunTag(CHANGED_PARAMS_TAG, ", ".join(changed)))
        self._call("log_batch", run_id, tags=tags, synchronous=True)
        for entry in header.inputs:
            source = json.dumps({"uri": entry.source})
            dataset = Dataset(entry.name, entry.digest[:DIGEST_LENGTH], "local", source)
            context = InputTag("mlflow.data.context", entry.context)
            self._call("log_inputs", run_id, [DatasetInput(dataset, [context])])
        # A call that is left at its deadline may still open the run, after it has ended.
        if run.info.status not in OPEN and not self.outbox.has("end"):
            self._call("update_run", run_id, "RUNNING")

    def _send_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        rows = [Metric(drawn_as(each.name), each.value, each.time, each.step) for each in points]
        self._call("log_batch", run_id, metrics=rows, synchronous=True)

    def _send_file(self, run_id: str, record: Record) -> None:
        folder, _, file = record.name.rpartition("/")
        data = record.data or b""
        with TemporaryDirectory() as temporary:
            path = Path(temporary) / file
            path.write_bytes(data)
            self._call("log_artifact", run_id, str(path), folder or None, size=len(data))

    def _send_model(self, run_id: str, header: Header, record: Record) -> None:
        """Builds and registers the model of an archive; each file may take a second of its own.

        An evaluation may have been delivered before, when there was no version to describe.
        """
        data = record.data or b""
        with TemporaryDirectory() as folder:
            zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
            model = registry.built(Path(folder))
            size = len(data) + UPLOAD_RATE * len([*model.rglob("*")])
            registry.register(partial(self._call, size=size), run_id, model, record)
        later: dict[str, list[Record]] = {"card": [], "version": []}
        for evaluation in map(Outbox, self.outbox.path.parent.glob("evaluate@*.sqlite")):
            with suppress(DataError):  # its own delivery names it
                if (begun := evaluation.header) and begun.run_key == header.run_key:
                    for kind, records in later.items():
                        records += evaluation.records(kind)
        for records in later.values():
            if newest := max(records, key=lambda each: each.time, default=None):
                self._send(run_id, header, newest)

    def _terminate(self, run_id: str, end: Record) -> None:
        """Ends a run, unless another part of it has ended later."""
        info = self._call("get_run", run_id).info
        last = max(end.time, info.end_time or 0)
        if info.status in OPEN or last == end.time:
            self._call("set_terminated", run_id, end.body, last)


def deliver(deliveries: Sequence[Delivery]) -> dict[Delivery, Exception]:
    """Sends all there is; returns why some are still pending."""
    pending: dict[Delivery, Exception] = {}
    unanswered = 0
    for delivery in deliveries:
        error: Exception | None = Unreachable("not tried")
        if unanswered < MOST_UNANSWERED:
            error = delivery.send()
            unanswered = unanswered + 1 if isinstance(error, Unreachable) else 0
        if error is not None:
            pending[delivery] = error
    return pending


def _above(header: Header) -> tuple[Header, dict[str, str]]:
    """Returns the header and the tags of the run of a pipeline or group, which children share."""
    assert header.parent is not None
    shared = ("quatrain.preset", "quatrain.seed", "quatrain.params", "mlflow.user")
    tags = {name: text for name, text in header.tags.items() if name in shared or "git." in name}
    key, name, tag, _ = header.parent
    return header._replace(run_key=key, run_name=name, parent=None), tags | {tag: "true"}
