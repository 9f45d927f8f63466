"""trials that end -> runs in MLflow, below the run of their sweep or comparison.

The stages of a trial deliver nothing: what they recorded in its folder becomes one run here, in an
outbox that this process, or `make sync`, delivers.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from pipeline.runtime.errors import Interrupted
from pipeline.tracking.origin import code_tags
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, Header, Parent, Row
from pipeline.tracking.run import Shipper, end_abandoned, writer_lock
from pipeline.tracking.store import resolve_uri
from pipeline.trials.trial import Trial, folder_of
from quatrain.storage.folders import digest_of

TRIAL_TAG = "quatrain.trial"


class Group:
    """Records a group of trials, and delivers its runs from a thread.

    As a context it finishes at its end, with `files`: FINISHED, KILLED by a signal, or FAILED.

    key: of all that the group depends on: another process with the same one continues the group.
    tags: of the group's own run.

    Raises:
        ConfigError: MLFLOW_TRACKING_URI names no store.
        LockHeld: another process records this group.
    """

    def __init__(
        self, root: Path, name: str, key: str, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        uri = resolve_uri(root)  # refused before anything is written
        groups = root / ".state" / "groups"
        self.files: list[Path] = []
        self._root = root
        self._folder = groups / f"{name}-{key[:8]}" / "outbox"
        self._parent = Parent(key, name, "quatrain.group", ends_with_child=False)
        self._tags = code_tags(root)
        self._outbox = Outbox(self._folder / f"{name}.sqlite")
        self._lock = ExitStack()
        self._lock.enter_context(writer_lock(self._outbox.path))
        of_group = {**self._tags, **tags, self._parent.tag: "true"}
        self._outbox.begin(Header(key, EXPERIMENT, name, params, of_group))
        abandoned = end_abandoned(groups.glob(f"{name}-*/outbox/*.sqlite"))
        self._shipper = Shipper([self._outbox, *abandoned], uri)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        is_killed = error is not None and issubclass(error, (Interrupted, KeyboardInterrupt))
        self.finish("KILLED" if is_killed else "FAILED" if error else "FINISHED", self.files)

    def ended(self, trial: Trial, label: str) -> None:
        """Records a trial that has ended as a run NAME-LABEL; again, it adds what is new.

        Another trial with this label has a run of its own.
        """
        parts = _newest_run(folder_of(self._root, trial))
        if not parts:  # refused before it recorded anything
            return
        run = Outbox(self._folder / f"{self._parent.run_name}-{label}-{trial.key[:8]}.sqlite")
        last, stored = parts[-1].record("end"), run.record("end")
        if last is None or stored is None or (last.body, last.time) != (stored.body, stored.time):
            run.begin(self._header(parts[0], trial, label), parts[0].begun_at)
            for part in parts:
                run.absorb(part)
            if last is not None:
                run.end(last.body, last.time)
            run.end_killed()
        self._shipper.add(run)

    def metrics(self, rows: Iterable[Row]) -> None:
        """Records metrics of the group, unless their (name, step) is recorded already."""
        self._outbox.metrics(rows)

    def conclude(self, tags: Mapping[str, str]) -> None:
        """Records what was found as tags of the group's own run."""
        for name, text in tags.items():
            self._outbox.put("tag", name, text)

    def finish(self, status: str, files: Sequence[Path]) -> None:
        """Records pages and pictures, and that the group is FINISHED, FAILED or KILLED; waits for
        the delivery.

        Prints one line to stderr about what is left and how to deliver it.
        """
        for path in files:
            self._outbox.artifact(path, "plots" if path.suffix == ".png" else "report")
        self._outbox.end(status)
        self._shipper.finish()
        self._lock.close()

    def _header(self, training: Outbox, trial: Trial, label: str) -> Header:
        """Returns the header of a training as that of a run below the group's."""
        header = training.header
        assert header is not None
        return header._replace(
            run_key=digest_of([self._parent.run_key, label, trial.key]),
            run_name=f"{self._parent.run_name}-{label}",
            tags={**header.tags, **self._tags, **commit_tags(trial), TRIAL_TAG: label},
            parent=self._parent,
        )


def commit_tags(trial: Trial) -> dict[str, str]:
    """Returns the commit of a trial that ran another one's code."""
    if trial.checkout is None:
        return {}
    commit = trial.checkout.name
    return {"git.commit": commit, "mlflow.source.git.commit": commit, "git.dirty": "false"}


def _newest_run(folder: Path) -> list[Outbox]:
    """Returns the outboxes of a trial's run, that of its training first.

    A trial that went on on another type of machine began another run.
    """
    outboxes = map(Outbox, (folder / ".state" / "outbox").glob("*.sqlite"))
    runs: dict[str, list[Outbox]] = {}
    for outbox in sorted(outboxes, key=lambda each: each.last_time):
        if (header := outbox.header) is not None:
            runs.setdefault(header.run_key, []).append(outbox)
    newest = max(runs.values(), key=lambda parts: parts[-1].last_time, default=[])
    return sorted(newest, key=lambda each: each.begun_at)
