"""archives of ended trials -> their runs in MLflow, below the run of the sweep.

Nodes never talk to MLflow: the driver takes the outboxes out of the storage and delivers each once.
"""

import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from queue import Queue

from pipeline.runtime import console
from pipeline.scaling import snapshots, work
from pipeline.scaling.records import Trial
from pipeline.scaling.snapshots import Storage
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.origin import TrialContext
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, Header
from pipeline.tracking.store import Unreachable, reason_of

# The last one is put in place last: it marks that all are there.
STAGES = ("evaluate", "train")


# A store that does not answer is left alone for so long: each attempt takes seconds.
SILENT_SECONDS = 60.0


class SweepRecord:
    """Records a sweep and its trials in outboxes, and delivers them from a thread."""

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        context: TrialContext,
        params: Mapping[str, str],
        model: str,
        uri: str,
    ) -> None:
        self._folder = folder
        self._storage = storage
        self._model = model
        self._uri = uri
        self._queue: Queue[Outbox | None] = Queue()
        self._pending: dict[Path, str] = {}
        self._late: list[Trial] = []
        self._silent_until = 0.0
        self.outbox = Outbox(folder / "sweep.sqlite")
        sweep = context.sweep
        tags = {**context.tags, sweep.tag: "true"}
        self.outbox.begin(Header(sweep.run_key, EXPERIMENT, sweep.run_name, params, tags))
        self._thread = threading.Thread(target=self._run, name="sweep-tracking", daemon=True)
        self._thread.start()
        self._queue.put(self.outbox)

    def ended(self, trial: Trial) -> None:
        """Delivers the outboxes of a trial; those of a trial that was stopped at the phase's end,
        because it still saves.
        """
        if trial.state in ("stopped", "failed"):
            self._late.append(trial)
        else:
            self._collect(trial)

    def phase_ended(self) -> None:
        """Delivers what was left for later; no trial runs any more."""
        for trial in self._late:
            self._collect(trial)
        self._late.clear()

    def catch_up(self, trials: Iterable[Trial]) -> None:
        """Delivers what an earlier driver left: it may have been killed after a trial's end."""
        for trial in trials:
            if trial.has_ended and trial.state != "refused":
                self._collect(trial)

    def best(self, trials_ended: int, score: float) -> None:
        """Records the best score after so many trials."""
        self.outbox.metrics([("sweep/best", trials_ended, score)])
        self._queue.put(self.outbox)

    def finish(self, status: str, files: Sequence[Path]) -> None:
        """Records the pages of the sweep and its end, and waits for the delivery.

        Prints one line if something is left.
        """
        for path in files:
            self.outbox.artifact(path, "plots" if path.suffix == ".png" else "report")
        self.outbox.end(status)
        self._queue.put(self.outbox)
        self._queue.put(None)
        self._thread.join()
        if self._pending:
            reason = next(iter(self._pending.values()))
            console.info(
                f"warning: tracking: {len(self._pending)} runs of the sweep are not yet at "
                f"{self._uri} ({reason}); `make sync` sends them"
            )

    def _collect(self, trial: Trial) -> None:
        """Takes a trial's outboxes out of the storage, unless they are here."""
        name = f"{trial.name}-%s@{self._model}.sqlite"
        targets = {verb: self._folder / (name % verb) for verb in STAGES}
        if not targets[STAGES[-1]].exists():
            self._unpack(trial, targets)
        for target in reversed(targets.values()):  # a run starts with its training
            if target.exists():
                self._queue.put(Outbox(target))

    def _unpack(self, trial: Trial, targets: Mapping[str, Path]) -> None:
        incoming = self._folder / "incoming" / trial.name
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        snapshots.restore(self._storage, trial.name, incoming)
        for verb, target in targets.items():
            newest = work.newest_outbox(incoming, f"{verb}@{self._model}")
            if newest is not None and not target.exists():
                Outbox(newest).end_killed()
                newest.rename(target)
        shutil.rmtree(incoming.parent)

    def _run(self) -> None:
        while (outbox := self._queue.get()) is not None:
            self._pending.pop(outbox.path, None)
            if time.monotonic() < self._silent_until:
                self._pending[outbox.path] = "the store did not answer"
                continue
            delivery = Delivery(outbox, self._uri)
            error = delivery.send()
            if error is not None:
                self._pending[outbox.path] = reason_of(error)
            if isinstance(error, Unreachable):
                self._silent_until = time.monotonic() + SILENT_SECONDS
