"""stage -> its journal and the shipper behind it: what a verb uses to record."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.runtime.devices import settings
from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.runtime.file_lock import folder_lock
from pipeline.runtime.stage import Stage
from pipeline.storage.artifacts import digest_of
from pipeline.tracking.journal import DatasetInput, Header, Journal, Parent, Row
from pipeline.tracking.shipper import LATEST_SECONDS, Shipper
from pipeline.tracking.store import resolve_uri
from pipeline.tracking.trial_context import trial_context
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS

EXPERIMENT = "quatrain"
# Subfolder of a journal whose lock its only writer holds.
WRITER = "writer"


class Run:
    """Records one stage's part of an MLflow run, first in the journal, then through a thread."""

    def __init__(self, journal: Journal, shippers: list[Shipper], lock: ExitStack) -> None:
        self.journal = journal
        self.shippers = shippers
        self.lock = lock

    @classmethod
    def of_stage(
        cls,
        stage: Stage,
        run_key: str,
        key: str,
        dataset_digest: str,
        extra_tags: Mapping[str, str] | None = None,
    ) -> Self:
        """Starts or continues the journal of the computation `key`, a part of the run `run_key`.

        An evaluation adds to the run of its training.
        """
        context = "evaluation" if stage.verb == "evaluate" else "training"
        header = Header(
            run_key=run_key,
            experiment=EXPERIMENT,
            run_name=f"{stage.model}-{run_key[:8]}",
            params=flatten(stage.config.model_dump(mode="json")),
            tags={**(tags(stage) if stage.verb == "train" else {}), **(extra_tags or {})},
            inputs=(DatasetInput(stage.model, dataset_digest, context, f"data/{stage.model}"),),
            parent=pipeline_run(stage.root, stage.params),
        )
        trial = trial_context()
        if trial is not None:
            header = trial.header(header)
        return cls.start(stage.root, stage.name, key, header, is_delivered=trial is None)

    @classmethod
    def of_pipeline(cls, root: Path, params: Params, key: str) -> Self:
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
                origin_tags(root, params),
            ),
        )

    @classmethod
    def start(
        cls, root: Path, stage: str, key: str, header: Header, is_delivered: bool = True
    ) -> Self:
        folder = journals(root) / f"{stage}-{key[:16]}"
        lock = ExitStack()
        lock.enter_context(folder_lock(folder / WRITER))
        journal = Journal(folder)
        journal.begin(header)
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
            self.journal.end("FINISHED" if error is None else failure)
        finally:
            for shipper in self.shippers:
                shipper.finish()
            self.lock.close()

    def metrics(self, rows: Iterable[Row]) -> None:
        """Records metrics; a (name, step) that is recorded already keeps its time and value."""
        self.journal.metrics(rows)
        for shipper in self.shippers:
            shipper.wake()

    def artifact(self, path: Path, folder: str) -> None:
        self.journal.artifact(path, folder)

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
    return Path(os.environ.get("DVC_ROOT") or root) / ".state" / "journal"


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
                journal.end("KILLED")
                ended.append(journal)
    return ended


def last_line(path: Path) -> bytes:
    """Returns the last line of a file, or the end of a long one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200))
        return file.read().rstrip(b"\n").rpartition(b"\n")[2]


def flatten(section: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns nested params under dotted names: `train.learning_rate` -> '0.001'."""
    flat: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)
    return flat


def pipeline_run(root: Path, params: Params) -> Parent:
    """Returns the run of everything that is made with these params and this commit."""
    key = digest_of({"params": params_digest(params), "commit": commit(root)})
    return Parent(key, f"pipeline-{params.preset}-{key[:8]}")


def tags(stage: Stage) -> dict[str, str]:
    versions = settings(stage.params, stage.framework)
    return {
        **{f"quatrain.{name}": value for name, value in versions.items()},
        **origin_tags(stage.root, stage.params),
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


def code_tags(root: Path) -> dict[str, str]:
    return {
        "git.commit": commit(root),
        "git.dirty": str(bool(git(root, "status", "--porcelain", "--untracked-files=no"))).lower(),
    }


def params_digest(params: Params) -> str:
    return digest_of(params.model_dump(mode="json", exclude={"checkpoint_seconds"}))


def commit(root: Path) -> str:
    return git(root, "rev-parse", "HEAD") or "none"


def git(root: Path, *arguments: str) -> str:
    """Returns the output of a git command; empty if it fails."""
    process = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return process.stdout.strip() if process.returncode == 0 else ""
