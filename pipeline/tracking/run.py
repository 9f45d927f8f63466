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
from pipeline.tracking.journal import DatasetInput, Header, Journal, Parent
from pipeline.tracking.shipper import LATEST_SECONDS, Shipper, resolve_uri
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import MODELS

EXPERIMENT = "quatrain"
WRITER = "writer"
"""Folder in a journal's whose lock its one writer holds."""


class Run:
    """One stage's part of an MLflow run: written to the journal first, shipped by a thread that nothing waits for."""

    def __init__(self, journal: Journal, shippers: list[Shipper], held: ExitStack) -> None:
        self.journal, self.shippers, self.held = journal, shippers, held

    @classmethod
    def of(
        cls,
        stage: Stage,
        run_key: str,
        key: str,
        dataset_digest: str,
        extra_tags: Mapping[str, str] | None = None,
    ) -> Self:
        """The run named `run_key`, in the journal of the computation `key` (an evaluation adds to its training)."""
        context = "evaluation" if stage.verb == "evaluate" else "training"
        header = Header(
            run_key=run_key,
            experiment=EXPERIMENT,
            run_name=f"{stage.model}-{run_key[:8]}",
            params=flat(stage.config.model_dump(mode="json")),
            tags=(tags(stage) if stage.verb == "train" else {}) | dict(extra_tags or {}),
            inputs=(DatasetInput(stage.model, dataset_digest, context, f"data/{stage.model}"),),
            parent=pipeline_of(stage.root, stage.params),
        )
        return cls.begun(stage.root, stage.name, key, header)

    @classmethod
    def of_pipeline(cls, root: Path, params: Params, key: str) -> Self:
        """The run that the runs of all stages stand below, in the journal of the results `key`."""
        parent, shared = (
            pipeline_of(root, params),
            params.model_dump(mode="json", exclude=set(MODELS)),
        )
        header = Header(
            parent.run_key, EXPERIMENT, parent.run_name, flat(shared), origin(root, params)
        )
        return cls.begun(root, "report", digest_of([parent.run_key, key]), header)

    @classmethod
    def begun(cls, root: Path, stage: str, key: str, header: Header) -> Self:
        """Begin, or go on with, the journal of one computation, and deliver it from now on."""
        folder, held = journals(root) / f"{stage}-{key[:16]}", ExitStack()
        held.enter_context(folder_lock(folder / WRITER))
        journal = Journal(folder)
        journal.begin(header)
        uri = resolve_uri(root)
        waiting = (journal, *end_abandoned(folder, stage))
        return cls(
            journal, [Shipper(one, uri, latest_seconds=LATEST_SECONDS) for one in waiting], held
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        status = (
            "FINISHED"
            if error is None
            else "KILLED"
            if isinstance(error, Interrupted)
            else "FAILED"
        )
        try:
            self.journal.end(status)
        finally:
            for shipper in self.shippers:
                shipper.finish()
            self.held.close()

    def metrics(self, rows: Iterable[tuple[str, int, float]]) -> None:
        """Record (name, step, value); a (name, step) that is on record already keeps its first time and value."""
        self.journal.metrics(rows)
        for shipper in self.shippers:
            shipper.wake()

    def artifact(self, path: Path, folder: str) -> None:
        """Record a file as it is now."""
        self.journal.artifact(path, folder)

    def history(self, prefix: str) -> dict[str, list[tuple[int, float]]]:
        """Recorded (step, value) of each metric below `prefix`, by the name behind it."""
        found = self.journal.history()
        return {
            name.removeprefix(prefix): points
            for name, points in found.items()
            if name.startswith(prefix)
        }

    def last_step(self, prefix: str) -> int:
        """The last step on record below `prefix`; 0 if there is none."""
        return max((points[-1][0] for points in self.history(prefix).values()), default=0)


def journals(root: Path) -> Path:
    """Where journals wait: in the checkout that DVC was started in, for `dvc exp run --temp` removes its copy."""
    return Path(os.environ.get("DVC_ROOT") or root) / ".state" / "journal"


def end_abandoned(current: Path, stage: str) -> list[Journal]:
    """A stage's other journals that have neither an end nor a living writer, for it was killed; they get an end."""
    ended = []
    for path in sorted(current.parent.glob(f"{stage}-*/journal.jsonl")):
        if path.parent == current or b'{"kind": "end"' in tail(path):
            continue
        # LockHeld: another workspace of this checkout is at work. DataError: `make sync` says so.
        with suppress(LockHeld, DataError), folder_lock(path.parent / WRITER, patience_seconds=0):
            journal = Journal(path.parent)
            if journal.header is not None:
                journal.end("KILLED")
                ended.append(journal)
    return ended


def tail(path: Path) -> bytes:
    """The last line of a file, or the end of a long one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200))
        return file.read().rstrip(b"\n").rpartition(b"\n")[2]


def flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested params as MLflow shows them: `train.learning_rate` -> '0.001'."""
    found: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = str(value)
    return found


def pipeline_of(root: Path, params: Params) -> Parent:
    """The run of everything that is made with these params and this commit."""
    key = digest_of({"params": params_digest(params), "commit": commit(root)})
    return Parent(key, f"pipeline-{params.preset}-{key[:8]}")


def tags(stage: Stage) -> dict[str, str]:
    """Where a model's run comes from: code, stage, preset, device, threads and versions."""
    found = {
        f"quatrain.{name}": value for name, value in settings(stage.params, stage.framework).items()
    }
    return (
        found
        | origin(stage.root, stage.params)
        | {"quatrain.model": stage.model, "dvc.stage": stage.name}
    )


def origin(root: Path, params: Params) -> dict[str, str]:
    """What any run comes from: code, preset and params."""
    return {
        "quatrain.preset": params.preset,
        "quatrain.seed": str(params.seed),
        "quatrain.params": params_digest(params)[:16],
        "git.commit": commit(root),
        "git.dirty": str(bool(git(root, "status", "--porcelain", "--untracked-files=no"))).lower(),
    }


def params_digest(params: Params) -> str:
    """Of all that shapes results."""
    return digest_of(params.model_dump(mode="json", exclude={"checkpoint_seconds"}))


def commit(root: Path) -> str:
    """The commit that is checked out; `none` outside a repository."""
    return git(root, "rev-parse", "HEAD") or "none"


def git(root: Path, *arguments: str) -> str:
    """What a git command says; empty outside a repository."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
