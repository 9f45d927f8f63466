"""data/MODEL -> models/MODEL: learn, note each record in the journal, continue where an earlier run was cut off."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.devices import device_of, settings
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage, main
from pipeline.storage import artifacts, history
from pipeline.storage.checkpoints import Checkpoints
from pipeline.tracking.model_export import record_model
from pipeline.tracking.progress_bar import Bar
from pipeline.tracking.run import Run
from pipeline.tracking.system_metrics import Machine
from quatrain.progress import Progress, TrainingDiverged, rows
from quatrain.registry import load

KEPT = 3
"""Other computations (a default run, experiments) whose checkpoints are kept."""


class Records(NamedTuple):
    """Where each yield goes."""

    run: Run
    checkpoints: Checkpoints
    bar: Bar
    machine: Machine


def train(stage: Stage, signals: Signals) -> None:
    """Train to the end, from the newest valid checkpoint of this very computation if there is one."""
    dataset, digest = stage.load_dataset()
    learning = load(stage.model).train
    key = stage.key([digest])
    checkpoints = Checkpoints(stage.state / stage.name / key)
    forget_old(checkpoints.folder)
    with Run.of(stage, key, key, digest) as run:
        found = checkpoints.latest()
        for why in checkpoints.skipped:
            console.info(f"{stage.name}: passed over a checkpoint: {why}")
        if found is not None and found.step > run.last_step("train/"):
            found = None  # its history is gone: a learner without its curve would make another history.csv
            checkpoints.clear()
        state = None if found is None else learning.from_arrays(stage.config, dataset, found.arrays)
        start = 0 if found is None else found.step
        progress = learning.train(stage.config, dataset, stage.seed("train"), state)
        machine = Machine(
            device_of(stage.params, stage.framework) == "cuda", run.last_step("system/")
        )
        with Bar(stage.name, stage.config.train.steps, start, learning.HEADLINE) as bar:
            last = follow(stage, signals, Records(run, checkpoints, bar, machine), progress, start)
        state = state if last is None else last
        arrays = learning.to_arrays(state)
        checkpoints.save(stage.config.train.steps, arrays)
        recorded = settings(stage.params, stage.framework)
        save(stage, run, arrays, {"run_key": key, "dataset": digest, "settings": recorded})
        record_model(stage, run, state, dataset)


def forget_old(folder: Path) -> None:
    """Keep the checkpoints of this and the last few computations.

    They stay when the training is done, too, for DVC may be killed before it knows.
    """
    others = [other for other in folder.parent.glob("*") if other.is_dir() and other != folder]
    for old in sorted(others, key=lambda other: other.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old)


def follow(
    stage: Stage, signals: Signals, records: Records, progress: Iterator[Progress], start: int
) -> Any:
    """Record each yield, keep a checkpoint every `checkpoint_seconds` and at an interruption.

    Returns the last learner; None where nothing was left to learn.
    """
    run, checkpoints, bar, machine = records
    to_arrays = load(stage.model).train.to_arrays
    saved_at, saved, state = time.monotonic(), start, None
    try:
        for made in progress:
            recorded = [(f"train/{name}", step, value) for name, step, value in rows(made, start)]
            run.metrics([*recorded, *machine.rows()])
            bar.show(made)
            start, state = made.step, made.state
            leaving = signals.received is not None
            if leaving or time.monotonic() - saved_at >= stage.params.checkpoint_seconds:
                checkpoints.save(made.step, to_arrays(state))
                saved_at, saved = time.monotonic(), made.step
            if leaving:
                signals.check()
    except TrainingDiverged as error:
        if state is not None and saved != start:
            checkpoints.save(start, to_arrays(state))
        kept = (
            f"last good checkpoint: step {start:,}, in {checkpoints.folder}"
            if start
            else "no step before was good"
        )
        raise TrainingDiverged(f"{error}; {kept}") from None
    run.metrics([(f"time/{name}", start, value) for name, value in bar.times().items()])
    return state


def save(stage: Stage, run: Run, arrays: dict[str, Any], info: dict[str, Any]) -> None:
    """models/MODEL: weights apart from what only resuming needs, config, history without clock and run id."""
    needed = load(stage.model).train.WEIGHTS
    weights = {name: array for name, array in arrays.items() if name.startswith(needed)}
    contents = {
        "weights.safetensors": weights,
        "state.safetensors": {name: array for name, array in arrays.items() if name not in weights},
        "config.json": stage.config.model_dump(mode="json"),
        "history.csv": history.to_csv(run.history("train/")),
    }
    artifacts.save(stage.weights, contents, info)
    for name in ("weights.safetensors", "config.json"):
        run.artifact(stage.weights / name, "model")


if __name__ == "__main__":
    sys.exit(main("train", __doc__ or "", train))
