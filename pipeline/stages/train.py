"""data/MODEL -> models/MODEL: trains, records every yield, continues an interrupted training."""

import time
from collections.abc import Iterator
from typing import Any

from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.processes import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage.checkpoints import Checkpoint, Checkpoints
from pipeline.storage.run_key import code_digest, shaping
from pipeline.tracking.export import record_model
from pipeline.tracking.monitoring import ProgressBar, SystemMetrics
from pipeline.tracking.records import HISTORY
from pipeline.tracking.run import Run
from quatrain.progress import Progress, TrainingDiverged, rows
from quatrain.storage import folders, history

# Other computations (a default run, experiments) whose checkpoints stay on the disk.
OTHER_CHECKPOINTS = 3


def train(stage: Stage, signals: Signals) -> str:
    """Trains to the end, from the newest valid checkpoint of this computation if there is one;
    returns its steps and headline metrics.
    """
    dataset, digest = stage.load_dataset()
    learner = stage.modules.train
    key = stage.key([digest])
    code = code_digest(stage.root, stage.model, stage.params, stage.verb)
    checkpoints = Checkpoints(stage.state / stage.name / key)
    checkpoints.remove_others(OTHER_CHECKPOINTS)
    with Run.of_stage(stage, key, key, digest) as run:
        recorder = Recorder(stage, run, checkpoints)
        checkpoint = usable_checkpoint(stage, checkpoints, run)
        if checkpoint is not None:
            recorder.step = recorder.saved_step = checkpoint.step
            recorder.state = learner.from_arrays(stage.config, dataset, checkpoint.arrays)
        progress = learner.train(stage.config, dataset, stage.seed("train"), recorder.state)
        recorder.record_all(progress, signals)
        arrays = learner.to_arrays(recorder.state)
        checkpoints.save(stage.config.train.steps, arrays)
        info = {
            "run_key": key,
            "dataset": digest,
            "settings": settings(stage.params, stage.framework),
            "params": shaping(stage.params),
            "code": code,
        }
        save(stage, run, arrays, info)
        record_model(stage, run, recorder.state, dataset)
        return recorder.summary()


def usable_checkpoint(stage: Stage, checkpoints: Checkpoints, run: Run) -> Checkpoint | None:
    """Returns the newest valid checkpoint whose metrics are recorded.

    Without the metrics before it, a continued training would write another history.csv.
    """
    checkpoint = checkpoints.latest()
    for reason in checkpoints.skipped:
        console.info(f"{stage.name}: passed over a checkpoint: {reason}")
    if checkpoint is not None and checkpoint.step > run.last_step(HISTORY):
        checkpoints.clear()
        return None
    return checkpoint


class Recorder:
    """Records the yields of a training, and saves checkpoints of it."""

    def __init__(self, stage: Stage, run: Run, checkpoints: Checkpoints) -> None:
        self.stage = stage
        self.run = run
        self.checkpoints = checkpoints
        uses_cuda = settings(stage.params, stage.framework)["device"] == "cuda"
        self.system_metrics = SystemMetrics(uses_cuda, run.last_step("system/"))
        self.state: Any = None
        """State of the last yield, or of the checkpoint; None before the first one."""
        self.step = 0
        self.saved_step = 0
        self.saved_at = time.monotonic()

    def record_all(self, progress: Iterator[Progress], signals: Signals) -> None:
        """Records each yield, and saves a checkpoint every `checkpoint_seconds`.

        Raises:
            Interrupted: a signal was received; the last yield is saved.
            TrainingDiverged: the message names the last good checkpoint.
        """
        headline = self.stage.modules.train.headline(self.stage.config)
        steps = self.stage.config.train.steps
        with ProgressBar(self.stage.name, steps, self.step, headline) as bar:
            try:
                for current in progress:
                    self.record(current)
                    bar.show(current)
                    if signals.received is not None:
                        self.save_checkpoint()
                        signals.check()
                    elif time.monotonic() - self.saved_at >= self.stage.params.checkpoint_seconds:
                        self.save_checkpoint()
            except TrainingDiverged as error:
                raise TrainingDiverged(f"{error}; {self.save_last_good()}") from None
            finally:
                compilation, rate = bar.times()
                if self.stage.meter is not None:
                    self.stage.meter.add("compile_seconds", compilation)
        self.run.metrics([("time/steps_per_second", self.step, rate)])

    def record(self, progress: Progress) -> None:
        """Records the metrics of one yield and of the machine."""
        self.run.curves(
            rows(progress, self.step), self.stage.modules.train.headline(self.stage.config)
        )
        self.run.metrics(self.system_metrics.rows())
        self.step = progress.step
        self.state = progress.state

    def save_checkpoint(self) -> None:
        """Saves the state of the last yield."""
        self.checkpoints.save(self.step, self.stage.modules.train.to_arrays(self.state))
        self.saved_step = self.step
        self.saved_at = time.monotonic()
        if self.stage.meter is not None:
            self.stage.meter.save()

    def summary(self) -> str:
        """Returns the steps, and the last values of the headline metrics."""
        history = self.run.history(HISTORY)
        names = self.stage.modules.train.headline(self.stage.config)
        values = [f"{name} {history[name][-1][1]:.4g}" for name in names if name in history]
        return ", ".join([f"{self.step:,} steps", *values])

    def save_last_good(self) -> str:
        """Saves the state before a failure unless it is saved, and says where it is."""
        if not self.step:
            return "no step before was good"
        if self.saved_step != self.step:
            self.save_checkpoint()
        return f"last good checkpoint: step {self.step:,}, in {self.checkpoints.folder}"


def save(stage: Stage, run: Run, arrays: dict[str, Any], info: dict[str, Any]) -> None:
    """Writes models/MODEL: weights, the rest of the state, config, and history without times."""
    prefixes = stage.modules.train.WEIGHTS
    weights = {name: array for name, array in arrays.items() if name.startswith(prefixes)}
    contents = {
        "weights.safetensors": weights,
        "state.safetensors": {name: array for name, array in arrays.items() if name not in weights},
        "config.json": stage.config.model_dump(mode="json"),
        "history.csv": history.to_csv(run.history(HISTORY)),
    }
    folders.save(stage.weights, contents, info)
    for name in ("weights.safetensors", "config.json"):
        run.artifact(stage.weights / name, "model")
