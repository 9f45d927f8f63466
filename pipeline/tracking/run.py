"""stage -> its outbox, and a thread that delivers it: what a verb uses to record."""

import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from pipeline.runtime import console
from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.runtime.processes import folder_lock
from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import dvc_root
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.origin import (
    DESCRIPTION_TAG,
    flatten,
    origin_tags,
    pipeline_run,
    tags,
    title,
    trial_context,
)
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, HISTORY, DatasetInput, Header, Row, chart_rows
from pipeline.tracking.store import PATIENCE_SECONDS, reason_of, resolve_uri
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.storage.folders import digest_of

POLL_SECONDS = 0.5
LONGEST_PAUSE = 600.0
# Delivery starts with the first record, or after this time: importing mlflow delays the work.
LATEST_SECONDS = 30.0


class Run:
    """Records one stage's part of an MLflow run, first on the disk, then through a thread."""

    def __init__(self, outbox: Outbox, shipper: "Shipper | None", lock: ExitStack) -> None:
        self.outbox = outbox
        self.shipper = shipper
        self.lock = lock

    @classmethod
    def of_stage(
        cls,
        stage: Stage,
        run_key: str,
        key: str,
        dataset_digest: str,
        started: int | None = None,
    ) -> Self:
        """Starts or continues the outbox of the computation `key`, a part of the run `run_key`.

        An evaluation adds to the run of its training. started: when the work began, in milliseconds
        since 1970; now if it is None.
        """
        context = "evaluation" if stage.verb == "evaluate" else "training"
        header = Header(
            run_key=run_key,
            experiment=EXPERIMENT,
            run_name=f"{stage.model} {title(stage.params)}",
            params=flatten(stage.config.model_dump(mode="json")),
            tags=tags(stage) if stage.verb == "train" else {},
            inputs=(DatasetInput(stage.model, dataset_digest, context, f"data/{stage.model}"),),
            parent=pipeline_run(stage.root, stage.params),
        )
        trial = trial_context()
        if trial is not None:
            header = trial.header(header)
        path = path_of(stage.root, stage.name, key)
        return cls.start(stage.root, path, header, trial is None, started)

    @classmethod
    def of_pipeline(cls, root: Path, params: Params, key: str, started: int | None = None) -> Self:
        """Starts or continues the outbox of the results `key`: the parent of all stages' runs."""
        pipeline = pipeline_run(root, params)
        header = Header(
            pipeline.run_key,
            EXPERIMENT,
            pipeline.run_name,
            flatten(params.model_dump(mode="json", exclude=set(MODELS))),
            {**origin_tags(root, params), pipeline.tag: "true", "mlflow.source.name": "dvc.yaml"},
        )
        return cls.start(root, report_path(root, params, key), header, started=started)

    @classmethod
    def start(
        cls,
        root: Path,
        path: Path,
        header: Header,
        is_delivered: bool = True,
        started: int | None = None,
    ) -> Self:
        """Starts or continues an outbox, whose only writer this process is."""
        uri = resolve_uri(root)  # refused before anything is written
        lock = ExitStack()
        lock.enter_context(writer_lock(path))
        outbox = Outbox(path)
        outbox.begin(header, started)
        shipper = None
        if is_delivered:
            outboxes = [outbox, *end_abandoned(path)]
            shipper = Shipper(outboxes, uri, latest_seconds=LATEST_SECONDS)
        return cls(outbox, shipper, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        failure = "KILLED" if isinstance(error, Interrupted) else "FAILED"
        try:
            self.outbox.end("FINISHED" if error is None else failure)
        finally:
            if self.shipper is not None:
                self.shipper.finish()
            self.lock.close()

    def metrics(self, rows: Iterable[Row]) -> None:
        """Records metrics; a (name, step) that is recorded already keeps its time and value."""
        self.outbox.metrics(rows)
        if self.shipper is not None:
            self.shipper.wake()

    def curves(self, table: Iterable[Row], headline: Sequence[str]) -> None:
        """Records rows of a training: all of them for history.csv, the charts for MLflow."""
        rows = list(table)
        charts = chart_rows(rows, headline)
        self.metrics(
            (f"{prefix}{name}", step, value)
            for prefix, part in ((HISTORY, rows), ("train/", charts))
            for name, step, value in part
        )

    def artifact(self, path: Path, folder: str) -> None:
        self.outbox.artifact(path, folder)

    def describe(self, text: str) -> None:
        """Records the description that the UI shows above a run."""
        self.outbox.put("tag", DESCRIPTION_TAG, text)

    @property
    def has_model(self) -> bool:
        return self.outbox.record("model") is not None

    def model(self, folder: Path, name: str, card: str) -> None:
        """Records a model in MLflow's format, to be a version of the registered model `name`."""
        with TemporaryDirectory() as temporary:
            archive = Path(shutil.make_archive(f"{temporary}/model", "zip", folder))
            self.outbox.put("model", name, card, data=archive.read_bytes())

    def history(self, prefix: str) -> dict[str, list[tuple[int, float]]]:
        """Returns the recorded (step, value) of each metric with this prefix, by its other name."""
        return self.outbox.history(prefix)

    def last_step(self, prefix: str) -> int:
        """Returns the last recorded step of the metrics with this prefix; 0 if there is none."""
        return self.outbox.last_step(prefix)


class Shipper:
    """Delivers outboxes, the first of which is still being written, from a daemon thread."""

    def __init__(
        self,
        outboxes: Sequence[Outbox],
        uri: str,
        wait_seconds: float = 30.0,
        retry_seconds: float = 60.0,
        latest_seconds: float = 0.0,
    ) -> None:
        self._uri = uri
        self._latest_seconds = latest_seconds
        self._wait_seconds = wait_seconds
        self._retry_seconds = retry_seconds
        self._deliveries = [Delivery(outbox, uri) for outbox in outboxes]
        self._current = self._deliveries[0]
        self._reason = "no answer yet"
        self._woken = threading.Event()
        self._finishing = threading.Event()
        self._settled = threading.Event()
        self._delivered = False
        threading.Thread(target=self._run, name="tracking", daemon=True).start()

    def wake(self) -> None:
        self._woken.set()

    def finish(self) -> bool:
        """Returns whether the store has everything; call it after the last record.

        An attempt that was in progress and failed is repeated once: a server may be back by now.
        Waits `wait_seconds` while calls are answered, and PATIENCE_SECONDS for a call that is not.
        Prints one line to stderr about what is left and how to deliver it.
        """
        self._finishing.set()
        self.wake()
        started = time.monotonic()
        while not self._settled.wait(0.02):
            patient_until = max(started + PATIENCE_SECONDS, self._current.patient_until)
            if time.monotonic() > min(started + self._wait_seconds, patient_until):
                break
        if self._delivered:
            return True
        counts = [delivery.outbox.pending() for delivery in self._deliveries]
        metrics, files = (sum(column) for column in zip(*counts, strict=True))
        console.info(
            f"warning: tracking: {metrics:,} metrics and {files} files of "
            f"{self._deliveries[0].outbox.name} are not yet at {self._uri} "
            f"({self._reason}); they are kept: `make sync` sends them"
        )
        return False

    def _run(self) -> None:
        pause = self._retry_seconds
        self._woken.wait(self._latest_seconds)
        while not self._settled.is_set():
            was_finishing = self._finishing.is_set()
            drained = self._drain()
            if was_finishing:
                self._delivered = drained
                for delivery in self._deliveries:
                    delivery.close()
                self._settled.set()
            elif drained:
                pause = self._retry_seconds
                self._finishing.wait(POLL_SECONDS)
            else:
                self._finishing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _drain(self) -> bool:
        """Delivers all there is; any failure is kept for `finish`, because training goes on."""
        for delivery in self._deliveries:
            self._current = delivery
            error = delivery.send()
            if error is not None:
                self._reason = reason_of(error)
                return False
        return True


# Where outboxes are.


def outboxes(root: Path) -> Path:
    """Returns the folder of all outboxes, in the folder in which DVC was started."""
    return dvc_root(root) / ".state" / "outbox"


def path_of(root: Path, stage: str, key: str) -> Path:
    return outboxes(root) / f"{stage}-{key[:16]}.sqlite"


def report_path(root: Path, params: Params, key: str) -> Path:
    return path_of(root, "report", digest_of([pipeline_run(root, params).run_key, key]))


def writer_lock(path: Path, patience_seconds: float = 30.0) -> AbstractContextManager[None]:
    return folder_lock(path.parent / "locks" / path.stem, patience_seconds)


def end_abandoned(current: Path) -> list[Outbox]:
    """Ends the other outboxes of a stage whose writer was killed, and returns them."""
    ended = []
    stage = current.stem.rpartition("-")[0]
    for path in sorted(current.parent.glob(f"{stage}-*.sqlite")):
        # LockHeld: another workspace of this checkout writes. `make sync` tells the others.
        with suppress(LockHeld, DataError, OSError), writer_lock(path, patience_seconds=0):
            outbox = Outbox(path)
            if outbox.record("begin") is not None and outbox.record("end") is None:
                outbox.end("KILLED", outbox.last_time)
                ended.append(outbox)
    return ended
