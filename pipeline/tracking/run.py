"""stage -> its outbox and the shipper behind it: what a verb uses to record."""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from pipeline.runtime.devices import settings
from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.runtime.file_lock import folder_lock
from pipeline.runtime.git import commit
from pipeline.runtime.stage import Stage
from pipeline.storage.artifacts import digest_of
from pipeline.tracking.charts import chart_rows
from pipeline.tracking.description import DESCRIPTION_TAG, description, flatten
from pipeline.tracking.origin import checkout_of, code_tags
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, HISTORY, DatasetInput, Header, Parent, Row
from pipeline.tracking.shipper import LATEST_SECONDS, Shipper
from pipeline.tracking.store import resolve_uri
from pipeline.tracking.trial_context import trial_context
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS


class Run:
    """Records one stage's part of an MLflow run, first on the disk, then through a thread."""

    def __init__(self, outbox: Outbox, shipper: Shipper | None, lock: ExitStack) -> None:
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
        lock = ExitStack()
        lock.enter_context(writer_lock(path))
        outbox = Outbox(path)
        outbox.begin(header, started)
        shipper = None
        if is_delivered:
            outboxes = [outbox, *end_abandoned(path)]
            shipper = Shipper(outboxes, resolve_uri(root), latest_seconds=LATEST_SECONDS)
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

    def card(self, name: str, text: str) -> None:
        """Records what the registered model `name` says of the version of this run."""
        self.outbox.put("card", name, text)

    def history(self, prefix: str) -> dict[str, list[tuple[int, float]]]:
        """Returns the recorded (step, value) of each metric with this prefix, by its other name."""
        return self.outbox.history(prefix)

    def last_step(self, prefix: str) -> int:
        """Returns the last recorded step of the metrics with this prefix; 0 if there is none."""
        return self.outbox.last_step(prefix)


def outboxes(root: Path) -> Path:
    """Returns the folder of all outboxes, in the checkout in which DVC was started.

    `dvc exp run --temp` works in a copy of the checkout and removes it.
    """
    return checkout_of(root) / ".state" / "outbox"


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


def pipeline_run(root: Path, params: Params) -> Parent:
    """Returns the run of everything that is made with these params and this commit."""
    key = digest_of({"params": params_digest(params), "commit": commit(root)})
    return Parent(key, title(params))


def title(params: Params) -> str:
    """Returns the name of DVC's experiment, or else preset and date."""
    experiment = os.environ.get("DVC_EXP_NAME")
    return experiment or f"{params.preset} {datetime.now():%Y-%m-%d %H:%M}"


def tags(stage: Stage) -> dict[str, str]:
    versions = settings(stage.params, stage.framework)
    return {
        **{f"quatrain.{name}": value for name, value in versions.items()},
        **origin_tags(stage.root, stage.params),
        "mlflow.source.name": f"pipeline/{stage.verb}.py",
        DESCRIPTION_TAG: description(stage.root, stage.params, stage.model),
        "quatrain.model": stage.model,
        "dvc.stage": stage.name,
    }


def origin_tags(root: Path, params: Params) -> dict[str, str]:
    return {
        "quatrain.preset": params.preset,
        "quatrain.seed": str(params.seed),
        "quatrain.params": params_digest(params)[:16],
        **code_tags(root),
    }


def params_digest(params: Params) -> str:
    return digest_of(params.model_dump(mode="json", exclude={"checkpoint_seconds"}))
