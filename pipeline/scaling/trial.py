"""a trial's params -> reports to Ray Tune: the stages run as child processes of a Ray actor.

A trial that starts again, on another node or in a later sweep, continues from its archive in the
storage. Importing this module loads Ray, and no framework of a model.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.tune import Trainable

from pipeline.runtime.errors import described
from pipeline.scaling import snapshots, work
from pipeline.scaling.records import Point
from pipeline.scaling.snapshots import Storage
from pipeline.scaling.work import Outcome, StageLost, TrialWork
from pipeline.storage.checkpoints import SLOTS
from pipeline.tracking.origin import TrialContext
from quatrain.errors import ConfigError, QuatrainError

# Reports to the driver are at least so far apart, except at the steps that a schedule compares.
REPORT_SECONDS = 1.0
POLL_SECONDS = 0.1
REFUSED = "refused"
# Key of a report with the outcome as JSON: Tune takes dictionaries apart.
OUTCOME = "outcome"
# Key of a report with a value that a schedule compares: there is one for each rung.
RUNG_VALUE = "rung_value"


class CodeDiffers(QuatrainError):
    """Says that this node has other code than the driver of the sweep."""

    exit_code = 3


class Common(NamedTuple):
    """Holds what all trials of a sweep share.

    rungs: steps at which a schedule compares. files: inputs and baseline, by path. code: digest of
    the driver's code. context: of the sweep, to which a trial adds its name. shelf: the actor that
    hands out datasets.
    """

    model: str
    watch: str
    cpus: int
    gpus: float
    rungs: tuple[int, ...]
    files: Mapping[str, bytes]
    storage: Storage
    code: str
    context: TrialContext
    shelf: Any


class SweepTrial(Trainable):
    """Runs one trial; Tune makes an actor of it."""

    def setup(self, config: dict[str, Any], common: Common) -> None:  # type: ignore[override]
        """Restores what an earlier attempt saved, and puts the dataset in place.

        A fault of the sweep is kept, and is the first report.
        """
        self._common = common
        self._name = str(config["name"])
        self._folder = fresh_folder(Path(self.logdir))
        self._pace = Pace(common.rungs)
        self._is_saved = False
        self._outcome: Outcome | None = None
        self._fault: QuatrainError | None = None
        context = common.context.of_trial(self._name)
        environment = work.stage_environment(common.cpus, common.gpus, context.to_environment())
        try:
            check_code(common.code)
            snapshots.restore(common.storage, self._name, self._folder)
            work.discard_another(self._folder, config["params"])
            work.prepare(self._folder, config["params"], common.files)
            self._outcome = work.read_outcome(self._folder)
            self._is_saved = self._outcome is not None
            if self._outcome is None:
                self._outcome = self._place_dataset(config, common)
        except QuatrainError as error:
            self._fault = error
        self._saved_slots = _slots(self._folder)
        self._work = TrialWork(self._folder, common.model, common.watch, environment)

    def _place_dataset(self, config: Mapping[str, Any], common: Common) -> Outcome | None:
        """Writes the dataset of these params; returns an outcome if it cannot be collected."""
        node = ray.get_runtime_context().get_node_id()
        asked = common.shelf.dataset.remote(config["dataset"], config["params"], node)
        (reference,) = ray.get(asked)
        try:
            files = ray.get(reference)
        except StageLost:
            common.shelf.forget.remote(config["dataset"])
            raise
        if REFUSED in files:
            return Outcome("refused", {}, 0.0, str(files[REFUSED]))
        folder = self._folder / "data" / common.model
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return None

    def step(self) -> dict[str, Any]:
        """Returns the next report: a row of the watched metric, how the trial ended, or a fault
        that ends the sweep.

        Raises:
            StageLost: a stage was killed; Tune starts the trial again.
        """
        try:
            if self._fault is not None:
                raise self._fault
            return self._next_report()
        except StageLost:
            raise
        except QuatrainError as error:
            self._is_saved = True
            return {"fault": described(error), "exit_code": error.exit_code, "done": True}

    def _next_report(self) -> dict[str, Any]:
        """Waits for the next report; without a row it tells the time, for Tune to answer.

        Raises:
            StorageFailed: a checkpoint cannot be stored.
            ConfigError: training does not record the watched metric.
        """
        began = time.monotonic()
        while True:
            if self._outcome is None:
                self._outcome = self._work.advance()
            self._pace.add(self._work.tail.read())
            self._check_watched()
            report = self._pace.due(has_ended=self._outcome is not None)
            if report is not None:
                return report | {"seconds": self._work.seconds()}
            if self._outcome is not None:
                return self._last_report()
            self._save_new_checkpoint()
            if time.monotonic() - began > REPORT_SECONDS:
                return {"seconds": self._work.seconds()}
            time.sleep(POLL_SECONDS)

    def _last_report(self) -> dict[str, Any]:
        assert self._outcome is not None
        if not self._is_saved:
            work.write_outcome(self._folder, self._outcome)
            snapshots.save(self._common.storage, self._name, self._folder)
            self._is_saved = True
        return {OUTCOME: json.dumps(self._outcome._asdict()), "done": True}

    def _check_watched(self) -> None:
        tail = self._work.tail
        has_ended = self._outcome is not None and self._outcome.state == "finished"
        if self._pace.is_late(tail.step) or (has_ended and tail.names and not self._pace.rows):
            names = ", ".join(sorted(name.removeprefix("train/") for name in tail.names))
            raise ConfigError(
                f"watch: training has recorded no {self._common.watch} by step {tail.step:,}; "
                f"name one of {names}, or raise schedule.first"
            )

    def _save_new_checkpoint(self) -> None:
        slots = _slots(self._folder)
        if slots - self._saved_slots:
            snapshots.save(self._common.storage, self._name, self._folder)
            self._saved_slots = slots

    def cleanup(self) -> None:
        """Ends a trial that was stopped, stores how far it came, and removes its folder."""
        try:
            self._work.end()
            if not self._is_saved:
                snapshots.save(self._common.storage, self._name, self._folder)
        finally:
            ray.get(self._common.shelf.leave.remote(self._name))
            shutil.rmtree(self._folder, ignore_errors=True)


class Pace:
    """Chooses the rows that are reported: each first one at or after a rung, others once a second.

    A schedule then compares the same rows, however fast the reports are.
    """

    def __init__(self, rungs: tuple[int, ...]) -> None:
        self.rows = 0
        self._rungs = rungs
        self._queue: list[Point] = []
        self._latest: Point | None = None
        self._step = 0
        self._reported_at = 0.0

    def add(self, rows: list[Point]) -> None:
        for row in rows:
            self.rows += 1
            if any(self._step < rung <= row.step for rung in self._rungs):
                self._queue.append(row)
                self._latest = None
            else:
                self._latest = row
            self._step = row.step

    def is_late(self, step: int) -> bool:
        """Returns whether training is far behind the first rung without a row."""
        return bool(self._rungs) and not self.rows and step > 2 * self._rungs[0]

    def due(self, has_ended: bool) -> dict[str, Any] | None:
        """Returns the report that is due now."""
        now = time.monotonic()
        if self._queue:
            self._reported_at = now
            row = self._queue.pop(0)
            return {**row.model_dump(), RUNG_VALUE: row.value}
        if self._latest is None or (not has_ended and now - self._reported_at < REPORT_SECONDS):
            return None
        report = self._latest.model_dump()
        self._latest = None
        self._reported_at = now
        return report


def fresh_folder(parent: Path) -> Path:
    """Returns a new folder for this process, without those of earlier attempts.

    It has a name of its own: the stage of an attempt whose process was killed still saves in its
    folder while the trial starts again on the same machine.
    """
    for earlier in parent.glob("work-*"):
        shutil.rmtree(earlier, ignore_errors=True)
    folder = parent / f"work-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


def check_code(expected: str) -> None:
    """Raises CodeDiffers unless this node has the driver's code."""
    digest = work.code_digest()
    if digest != expected:
        raise CodeDiffers(
            f"node {ray.util.get_node_ip_address()} has other code than the driver "
            f"({digest[:12]}, not {expected[:12]}); bring both to one commit"
        )


def _slots(folder: Path) -> set[tuple[str, int]]:
    """Returns the complete checkpoints in a folder, with the time of each."""
    manifests = [
        path for slot in SLOTS for path in folder.glob(f".state/train@*/*/{slot}/manifest.json")
    ]
    return {(str(path), path.stat().st_mtime_ns) for path in manifests}
