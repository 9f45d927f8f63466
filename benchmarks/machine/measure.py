"""this machine -> rows: seconds to refuse a wrong params.yaml and to reach a first yield"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ruamel.yaml import YAML

from benchmarks.harness import Goal, Measured, NotComparable, Report, Row
from pipeline.runtime.devices import JAX_CACHE
from quatrain.presets import read_raw
from quatrain.validation import overlaid

TRIED = (
    "small programs are kept, too; mlflow is imported at the first record, not beside the first"
    " step. Most of what is left is importing jax and flax: pairs of starts of allo gave ratios"
    " from 1.3 to 3"
)
NEARER: dict[str, dict[str, Any]] = {
    "allo": {},
    "iqn": {"train": {"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0}},
}
"""Model -> what brings its first yield near, at the shapes of params.yaml."""
TO_THE_FIRST_YIELD = """
import os, sys
from pipeline.runtime import stage
from pipeline.stages import train
train.ProgressBar.show = lambda *_: os._exit(0)
sys.exit(stage.main("train", "", train.train, [sys.argv[1]]))
"""
UNREACHABLE = "http://127.0.0.1:1"
"""A tracking server that refuses at once: what a delivery costs is no part of a start."""
NOTES = [
    "start to first yield: one start with an empty compilation cache (before), one with a full"
]


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows; starts take seconds to minutes, so each is measured once."""
    rows = [check_row(root, rounds), *(start_row(root, model) for model in NEARER)]
    return Report(rows, NOTES, jax.devices()[0].device_kind)


def check_row(root: Path, rounds: int) -> Row:
    """Measures a process that refuses a wrong params.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        text = (root / "params.yaml").read_text()
        wrong = text.replace("batch_size: 256", "batch_size: -256")
        Path(folder, "params.yaml").write_text(wrong)
        command = ("-m", "pipeline", "params", "check")
        seconds = [seconds_of(root, folder, *command, code=2) for _ in range(rounds)]
    ours, goal = Measured(np.array(seconds)), Goal(2.0, "value")
    return Row("wrong params.yaml refused", "s", ours, goal=goal)


def start_row(root: Path, model: str) -> Row:
    """Measures a training stage from process start to first yield, without and with a cache."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(root / "inputs", work / "inputs")
        with (work / "params.yaml").open("w") as file:
            YAML().dump(overlaid(read_raw(root, "default"), {model: NEARER[model]}), file)
        seconds_of(root, folder, "-m", "pipeline.collect", model)
        shutil.rmtree(work / JAX_CACHE)
        starts = []
        for cache in ("an empty", "a full"):
            shutil.rmtree(work / ".state", ignore_errors=True)
            starts.append(seconds_of(root, folder, "-c", TO_THE_FIRST_YIELD, model))
            if not any(work.glob(f"{JAX_CACHE}/*/*run_chunk*-cache")):
                raise NotComparable(f"{model}: a start with {cache} cache compiled no training")
    empty, full = (Measured(np.array([seconds])) for seconds in starts)
    return Row(
        f"start to first yield, {model}",
        "s",
        full,
        empty,
        goal=Goal(2.5, "before"),
        against="an empty compilation cache",
        tried=TRIED,
    )


def seconds_of(root: Path, folder: str, *arguments: str, code: int = 0) -> float:
    """Returns the duration of a Python process in a folder, with this checkout's code and without
    the settings of jax of this process.

    Raises:
        NotComparable: it ended with another exit code.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    kept.pop("DVC_ROOT", None)
    kept["PYTHONPATH"] = f"{(root / 'src').resolve()}{os.pathsep}{root.resolve()}"
    kept["MLFLOW_TRACKING_URI"] = UNREACHABLE
    command = [sys.executable, *arguments]
    begin = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if ended.returncode != code:
        what = f"exit {ended.returncode} in place of {code}, {ended.stderr}"
        raise NotComparable(f"{' '.join(arguments[-2:])}: {what}")
    return seconds
