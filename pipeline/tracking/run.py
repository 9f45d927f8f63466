"""stage -> its outbox, and a thread that delivers it: what a verb uses to record."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil

from pipeline.runtime import console
from pipeline.runtime.costs import Meter
from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.runtime.processes import COURIER_VARIABLE, TRIAL_VARIABLE, folder_lock
from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import dvc_root, read_params
from pipeline.tracking import origin
from pipeline.tracking.costs import cost_rows
from pipeline.tracking.delivery import Delivery, deliver
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, DatasetInput, Header, Row, curve_rows
from pipeline.tracking.store import reason_of, resolve_uri
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.storage import folders

POLL_SECONDS = 0.5
# Pause after a failed delivery.
RETRY_SECONDS = 60.0
# How long a stage that ends waits for the delivery.
WAIT_SECONDS = 30.0
# Importing mlflow takes seconds of work: a stage gets so far first.
FIRST_SECONDS = 10.0
# Names the stages whose results were made elsewhere, and restored by DVC.
RESTORED_TAG = "quatrain.restored"


class Run(Outbox):
    """Records one stage's part of an MLflow run, first on the disk, then through a thread."""

    # When the run ends, in milliseconds since 1970; None: now.
    ends_at: int | None = None

    @classmethod
    @contextmanager
    def of_stage(cls, stage: Stage, run_key: str, key: str, dataset_digest: str) -> Iterator[Self]:
        """Starts or continues the outbox of the computation `key`, a part of the run `run_key`.

        An evaluation adds to the run of its training. Both end after the seconds of their work, so
        that the run lasts as long as that, without pauses.
        """
        meter = stage.meter or Meter()
        context = "evaluation" if stage.verb == "evaluate" else "training"
        header = Header(
            run_key=run_key,
            experiment=EXPERIMENT,
            run_name=f"{stage.model} {origin.title(stage.params)}",
            params=origin.flatten(stage.config.model_dump(mode="json")),
            tags=origin.tags(stage) if stage.verb == "train" else {},
            inputs=(DatasetInput(stage.model, dataset_digest, context, f"data/{stage.model}"),),
            parent=origin.pipeline_run(stage.root, stage.params),
        )
        path = path_of(stage.root, stage.name, key)
        with cls.start(stage.root, path, header, anew=stage.verb != "train") as run:
            try:
                yield run
                run.metrics(cost_rows(stage, meter.stop()))
            finally:
                recorded = run.history(f"time/{stage.verb}_").get("seconds", [])
                seconds = recorded[-1][1] if recorded else meter.stop()["seconds"]
                run.ends_at = run.work_begins_at(stage, run_key) + round(1000 * seconds)

    @classmethod
    def of_pipeline(
        cls, root: Path, params: Params, key: str, beside: Sequence[Outbox] = ()
    ) -> AbstractContextManager[Self]:
        """Starts or continues the outbox of the results `key`: the parent of all stages' runs."""
        pipeline = origin.pipeline_run(root, params)
        header = Header(
            pipeline.run_key,
            EXPERIMENT,
            pipeline.run_name,
            origin.flatten(params.model_dump(mode="json", exclude=set(MODELS))),
            {
                **origin.origin_tags(root, params),
                pipeline.tag: "true",
                "mlflow.source.name": "dvc.yaml",
            },
        )
        return cls.start(root, report_path(root, params, key), header, beside=beside)

    @classmethod
    @contextmanager
    def start(
        cls,
        root: Path,
        path: Path,
        header: Header,
        anew: bool = True,
        beside: Sequence[Outbox] = (),
    ) -> Iterator[Self]:
        """Starts or continues an outbox, whose only writer this process is, and ends it.

        anew: as for `begin`; a training that had ended is not done again. beside: outboxes that are
        delivered with it.
        """
        # Refused before anything is written.
        uri = None if in_trial() else resolve_uri(root)
        with writer_lock(path):
            run = cls(path)
            run.begin(header, anew=anew)
            shipper = None
            if uri is not None:
                stage = path.stem.rpartition("-")[0]
                others = [*end_abandoned(path.parent.glob(f"{stage}-*.sqlite")), *beside]
                if not has_courier():
                    shipper = Shipper([run, *others], uri)
            status = "FAILED"
            try:
                yield run
                status = "FINISHED"
            except Interrupted:
                status = "KILLED"
                raise
            finally:
                try:
                    run.end(status, run.ends_at)
                finally:
                    if uri is not None and shipper is None and not has_courier():
                        shipper = Shipper([run, *others], uri)
                    if shipper is not None:
                        shipper.finish(WAIT_SECONDS)

    def work_begins_at(self, stage: Stage, run_key: str) -> int:
        """Returns when a training began, or else its end, after which its evaluation counts."""
        training = path_of(stage.root, f"train@{stage.model}", run_key)
        is_after = stage.verb == "evaluate" and training.is_file()
        end = Outbox(training).record("end") if is_after else None
        return end.time if end else self.begun_at

    def curves(self, table: Iterable[Row], headline: Sequence[str]) -> None:
        """Records rows of a training: all of them for history.csv, the charts for MLflow."""
        rows, hidden = curve_rows(table, headline)
        self.metrics(rows, hidden=hidden)

    def describe(self, text: str) -> None:
        """Records the description that the UI shows above a run."""
        self.put("tag", origin.DESCRIPTION_TAG, text)


class Shipper:
    """Delivers outboxes from a daemon thread while they are written.

    folder: in which those are delivered, too, that other processes write from now on.
    """

    def __init__(self, outboxes: Iterable[Outbox], uri: str, folder: Path | None = None) -> None:
        self._outboxes = [*outboxes]
        self._uri = uri
        self._folder = folder
        self._old = self._versions()
        self._reason = "no answer yet"
        self._finishing = threading.Event()
        self._is_delivered = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def add(self, outbox: Outbox) -> None:
        """Delivers one more outbox, which has ended."""
        self._outboxes.append(outbox)

    def finish(self, patience_seconds: float | None = None) -> bool:
        """Returns whether the store has everything; call it after the last record.

        An attempt that was in progress and failed is repeated once: a server may be back by now.
        Waits at most `patience_seconds`; prints one line to stderr about what is left and how to
        deliver it.
        """
        self._finishing.set()
        self._thread.join(patience_seconds)
        if self._is_delivered and not self._thread.is_alive():
            return True
        left = {}
        for outbox in self._outboxes:
            with suppress(DataError, OSError):  # `make sync` names damaged ones
                left[outbox.name] = outbox.pending()
        metrics, files = (sum(pending[kind] for pending in left.values()) for kind in (0, 1))
        names = ", ".join(name for name, pending in left.items() if any(pending))
        console.info(
            f"warning: tracking: {metrics:,} metrics and {files} files of {names} are not yet at "
            f"{self._uri} ({self._reason}); they are kept: `make sync` sends them"
        )
        return False

    def _run(self) -> None:
        """Delivers all there is, again and again until `finish`, which reports what failed."""
        self._finishing.wait(FIRST_SECONDS)
        deliveries: list[Delivery] = []
        begun = 0
        is_last = False
        while not is_last:
            is_last = self._finishing.is_set()
            self._is_delivered = False
            self._outboxes += self._written({each.outbox.path for each in deliveries})
            added = self._outboxes[begun:]
            begun += len(added)
            deliveries += [Delivery(outbox, self._uri) for outbox in added]
            pending = deliver(deliveries)
            self._is_delivered = not pending
            if pending:
                self._reason = reason_of(next(iter(pending.values())))
            deliveries = [delivery for delivery in deliveries if not delivery.is_done]
            self._finishing.wait(RETRY_SECONDS if pending else POLL_SECONDS)

    def _written(self, pending: Set[Path]) -> list[Outbox]:
        """Returns the outboxes of the folder that were written since they were looked at, and are
        not pending; those of trainings come first, because an evaluation adds to the run of one.
        """
        versions = self._versions()
        paths = {path for path, _ in versions.items() - self._old.items()} - pending
        self._old |= {path: versions[path] for path in paths}
        return [Outbox(path) for path in sorted(paths, reverse=True)]

    def _versions(self) -> dict[Path, int]:
        """Returns the outboxes of the folder, each with the time of its last change."""
        versions = {}
        for path in self._folder.glob("*.sqlite") if self._folder else ():
            with suppress(OSError):
                versions[path] = path.stat().st_mtime_ns
        return versions


def has_courier() -> bool:
    """Returns whether a process above this one delivers what it records, and lives."""
    return psutil.pid_exists(int(os.environ.get(COURIER_VARIABLE) or -1))


@contextmanager
def courier(root: Path, work: Path) -> Iterator[dict[str, str]]:
    """Delivers what the stages in `work` record, so that mlflow is loaded once for all of them;
    yields the variable that tells them so. Waits for the delivery at the end.

    Raises:
        ConfigError: MLFLOW_TRACKING_URI names no store.
    """
    shipper = Shipper([], resolve_uri(root), outboxes(work))
    try:
        yield {COURIER_VARIABLE: str(os.getpid())}
    finally:
        shipper.finish(WAIT_SECONDS)


# Where outboxes are.


def outboxes(root: Path) -> Path:
    """Returns the folder of all outboxes, in the folder in which DVC was started."""
    return dvc_root(root) / ".state" / "outbox"


def path_of(root: Path, stage: str, key: str) -> Path:
    return outboxes(root) / f"{stage}-{key[:16]}.sqlite"


def report_path(root: Path, params: Params, key: str) -> Path:
    return path_of(
        root, "report", folders.digest_of([origin.pipeline_run(root, params).run_key, key])
    )


def writer_lock(path: Path, patience_seconds: float = 30.0) -> AbstractContextManager[None]:
    return folder_lock(path.parent / "locks" / path.stem, patience_seconds)


def end_abandoned(paths: Iterable[Path]) -> list[Outbox]:
    """Ends those outboxes whose writer was killed, and returns them."""
    ended = []
    for path in sorted(paths):
        # LockHeld: a process writes it. `make sync` names damaged ones.
        with suppress(LockHeld, DataError, OSError), writer_lock(path, patience_seconds=0):
            if Outbox(path).end_killed():
                ended.append(Outbox(path))
    return ended


def in_trial() -> bool:
    """Returns whether this stage belongs to a trial of a study, a sweep or a comparison.

    It records in its outbox, and delivers nothing: whoever runs the trials does. It registers no
    model: its params may be adopted as a preset, and trained by that.
    """
    return bool(os.environ.get(TRIAL_VARIABLE))


# Results that DVC's cache restored have no run of their own.


def record_restored(root: Path, models: Iterable[str]) -> None:
    """Records in a tag of the pipeline's run which results DVC restored, once.

    Raises:
        ConfigError: params.yaml cannot be used.
        DataError, OSError: a result or an outbox is damaged, or the disk is full.
    """
    names = ", ".join(name for model in models for name in restored(root, model))
    params = read_params(root)
    if names and not report_path(root, params, names).is_file():
        with Run.of_pipeline(root, params, names) as run:
            run.put("tag", RESTORED_TAG, names)


def restored(root: Path, model: str) -> Iterator[str]:
    """Yields the stages of a model of whose results no outbox is here."""
    key = folders.read_json(root / "models" / model / folders.MANIFEST)["info"]["run_key"]
    if not path_of(root, f"train@{model}", key).is_file():
        yield f"train@{model}"
    if not evaluations_of(root, model, key):
        yield f"evaluate@{model}"


def evaluations_of(root: Path, model: str, run_key: str) -> list[Outbox]:
    """Returns the outboxes of the evaluations of a training that ran here."""
    outboxes_of_model = map(Outbox, outboxes(root).glob(f"evaluate@{model}-*.sqlite"))
    pairs = [(outbox, outbox.header) for outbox in outboxes_of_model]
    return [outbox for outbox, header in pairs if header and header.run_key == run_key]
