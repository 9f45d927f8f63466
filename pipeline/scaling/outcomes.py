"""archives of ended trials -> their runs in MLflow, below the run of the sweep.

Nodes never talk to MLflow: the driver takes the journals out of the storage and delivers each once.
"""

import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from queue import Queue

from pipeline.runtime import console
from pipeline.runtime.redaction import shown
from pipeline.scaling import snapshots, work
from pipeline.scaling.records import Trial
from pipeline.scaling.snapshots import Storage
from pipeline.tracking.experiment import EXPERIMENT
from pipeline.tracking.journal import Header, Journal
from pipeline.tracking.pending import JournalDelivery
from pipeline.tracking.trial_context import TrialContext

# The last one is put in place last: it marks that all are there.
STAGES = ("evaluate", "train")


# A store that does not answer is left alone for so long: each attempt takes seconds.
SILENT_SECONDS = 60.0


class SweepRecord:
    """Records a sweep and its trials in journals, and delivers them from a thread."""

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
        self._queue: Queue[Path | None] = Queue()
        self._pending: list[JournalDelivery] = []
        self._late: list[Trial] = []
        self._silent_until = 0.0
        self.journal = Journal(folder / "sweep")
        sweep = context.sweep
        tags = {**context.tags, sweep.tag: "true"}
        self.journal.begin(Header(sweep.run_key, EXPERIMENT, sweep.run_name, params, tags))
        self._thread = threading.Thread(target=self._run, name="sweep-tracking", daemon=True)
        self._thread.start()
        self._queue.put(self.journal.folder)

    def ended(self, trial: Trial) -> None:
        """Delivers the journals of a trial; those of a trial that was stopped at the phase's end,
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
        self.journal.metrics([("sweep/best", trials_ended, score)])
        self._queue.put(self.journal.folder)

    def finish(self, status: str, files: Sequence[Path]) -> None:
        """Records the pages of the sweep and its end, and waits for the delivery.

        Prints one line if something is left.
        """
        for path in files:
            self.journal.artifact(path, "plots" if path.suffix == ".png" else "report")
        self.journal.end(status)
        self.journal.close()
        self._queue.put(self.journal.folder)
        self._queue.put(None)
        self._thread.join()
        if self._pending:
            first = self._pending[0]
            console.info(
                f"warning: tracking: {len(self._pending)} runs of the sweep are not yet at "
                f"{shown(self._uri)} ({first.pending}); `make sync` sends them"
            )

    def _collect(self, trial: Trial) -> None:
        """Takes a trial's journals out of the storage, unless they are here."""
        targets = {verb: self._folder / f"{trial.name}-{verb}@{self._model}" for verb in STAGES}
        if not targets[STAGES[-1]].exists():
            self._unpack(trial, targets)
        for target in targets.values():
            if target.exists():
                self._queue.put(target)

    def _unpack(self, trial: Trial, targets: Mapping[str, Path]) -> None:
        incoming = self._folder / "incoming" / trial.name
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        snapshots.restore(self._storage, trial.name, incoming)
        for verb, target in targets.items():
            newest = work.newest_journal(incoming, f"{verb}@{self._model}")
            if newest is not None and not target.exists():
                work.end_journal(newest.parent)
                newest.parent.rename(target)
        shutil.rmtree(incoming.parent)

    def _run(self) -> None:
        while (folder := self._queue.get()) is not None:
            self._pending = [each for each in self._pending if each.folder != folder]
            delivery = JournalDelivery(folder, self._uri)
            if time.monotonic() < self._silent_until:
                delivery.pending = "the store did not answer"
            elif not delivery.send():
                self._silent_until = time.monotonic() + SILENT_SECONDS
            if delivery.pending is not None:
                self._pending.append(delivery)
