"""stage -> its journal and the shipper behind it: what a verb uses to record."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
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
from pipeline.tracking.experiment import EXPERIMENT
from pipeline.tracking.journal import HISTORY, DatasetInput, Header, Journal, Parent, Row
from pipeline.tracking.origin import checkout_of, code_tags
from pipeline.tracking.shipper import LATEST_SECONDS, Shipper
from pipeline.tracking.store import resolve_uri
from pipeline.tracking.trial_context import trial_context
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS

# Subfolder of a journal whose lock its only writer holds.
WRITER = "writer"


class Run:
    """Records one stage's part of an MLflow run, first in the journal, then through a thread."""

    def __init__(
        self, journal: Journal, shippers: list[Shipper], lock: ExitStack, ended: int | None = None
    ) -> None:
        self.journal = journal
        self.shippers = shippers
        self.lock = lock
        self.ended = ended
        """When the work ended, in milliseconds since 1970; None while it is done."""

    @classmethod
    def of_stage(
        cls,
        stage: Stage,
        run_key: str,
        key: str,
        dataset_digest: str,
        extra_tags: Mapping[str, str] | None = None,
        started: int | None = None,
    ) -> Self:
        """Starts or continues the journal of the computation `key`, a part of the run `run_key`.

        An evaluation adds to the run of its training. started: when the work began, in milliseconds
        since 1970; now if it is None.
        """
        context = "evaluation" if stage.verb == "evaluate" else "training"
        header = Header(
            run_key=run_key,
            experiment=EXPERIMENT,
            run_name=f"{stage.model} {title(stage.params)}",
            params=flatten(stage.config.model_dump(mode="json")),
            tags={**(tags(stage) if stage.verb == "train" else {}), **(extra_tags or {})},
            inputs=(DatasetInput(stage.model, dataset_digest, context, f"data/{stage.model}"),),
            parent=pipeline_run(stage.root, stage.params),
        )
        trial = trial_context()
        if trial is not None:
            header = trial.header(header)
        return cls.start(
            stage.root, stage.name, key, header, is_delivered=trial is None, started=started
        )

    @classmethod
    def of_pipeline(cls, root: Path, params: Params, key: str, started: int | None = None) -> Self:
        """Starts or continues the journal of the results `key`: the parent of all stages' runs."""
        pipeline = pipeline_run(root, params)
        shared = flatten(params.model_dump(mode="json", exclude=set(MODELS)))
        return cls.start(
            root,
            "report",
            digest_of([pipeline.run_key, key]),
            Header(
                pipeline.run_key,
                EXPERIMENT,
                pipeline.run_name,
                shared,
                {**origin_tags(root, params), "mlflow.source.name": "dvc.yaml"},
            ),
            started=started,
        )

    @classmethod
    def start(
        cls,
        root: Path,
        stage: str,
        key: str,
        header: Header,
        is_delivered: bool = True,
        started: int | None = None,
    ) -> Self:
        folder = journals(root) / f"{stage}-{key[:16]}"
        lock = ExitStack()
        lock.enter_context(folder_lock(folder / WRITER))
        journal = Journal(folder)
        journal.begin(header, started)
        delivered = [journal, *end_abandoned(folder, stage)] if is_delivered else []
        shippers = [
            Shipper(each, resolve_uri(root), latest_seconds=LATEST_SECONDS) for each in delivered
        ]
        return cls(journal, shippers, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        failure = "KILLED" if isinstance(error, Interrupted) else "FAILED"
        try:
            self.journal.end("FINISHED" if error is None else failure, self.ended)
        finally:
            for shipper in self.shippers:
                shipper.finish()
            self.lock.close()

    def metrics(self, rows: Iterable[Row]) -> None:
        """Records metrics; a (name, step) that is recorded already keeps its time and value."""
        self.journal.metrics(rows)
        for shipper in self.shippers:
            shipper.wake()

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
        self.journal.artifact(path, folder)

    def describe(self, text: str) -> None:
        """Records the description that the UI shows above a run."""
        self.journal.tags({DESCRIPTION_TAG: text})

    def history(self, prefix: str) -> dict[str, list[tuple[int, float]]]:
        """Returns the recorded (step, value) of each metric with this prefix, by its other name."""
        return {
            name.removeprefix(prefix): points
            for name, points in self.journal.history().items()
            if name.startswith(prefix)
        }

    def last_step(self, prefix: str) -> int:
        """Returns the last recorded step of the metrics with this prefix; 0 if there is none."""
        return max((points[-1][0] for points in self.history(prefix).values()), default=0)


def journals(root: Path) -> Path:
    """Returns the folder of all journals, in the checkout in which DVC was started.

    `dvc exp run --temp` works in a copy of the checkout and removes it.
    """
    return checkout_of(root) / ".state" / "journal"


def end_abandoned(current: Path, stage: str) -> list[Journal]:
    """Ends a stage's other journals whose writer was killed, and returns them."""
    ended = []
    for path in sorted(current.parent.glob(f"{stage}-*/journal.jsonl")):
        if path.parent == current or b'{"kind": "end"' in last_line(path):
            continue
        # LockHeld: another workspace of this checkout writes. DataError: `make sync` reports it.
        with suppress(LockHeld, DataError), folder_lock(path.parent / WRITER, patience_seconds=0):
            journal = Journal(path.parent)
            if journal.header is not None:
                journal.end("KILLED", journal.last_time)
                ended.append(journal)
    return ended


def last_line(path: Path) -> bytes:
    """Returns the last line of a file, or the end of a long one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200))
        return file.read().rstrip(b"\n").rpartition(b"\n")[2]


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
