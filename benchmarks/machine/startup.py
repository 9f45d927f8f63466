"""the checkout -> seconds to import, to refuse a wrong params.yaml, to reach the first yield of a
training
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from benchmarks.harness import Contestant, Measured, race
from benchmarks.table import Goal, NotTheSame, Row
from pipeline.runtime.compile_cache import FOLDER
from pipeline.storage.params_file import overlaid, read_raw

IMPORTS = {
    "numpy": "numpy",
    "jax": "jax",
    "jax, flax, optax": "jax, flax.linen, optax",
    "torch": "torch",
    "mlflow": "mlflow",
}
TRIED = (
    "small programs are kept, too; mlflow is imported at the first record, not beside the first"
    " step. Most of what is left is importing jax and flax: pairs of starts of allo gave ratios"
    " from 1.3 to 3"
)
SOONER = 2.5
CHECK_SECONDS = 2.0
STARTS = {"allo": 1, "iqn": 1}
"""How often each JAX model starts with an empty cache, and as often with a full one: iqn compiles
for half a minute.
"""
SHORT: dict[str, dict[str, Any]] = {
    "allo": {},
    "iqn": {"train": {"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0}},
}
"""What brings the first yield near, at the shapes of params.yaml: iqn's would come after seconds of
learning.
"""
TO_THE_FIRST_YIELD = """
import os, sys
from pipeline import train
from pipeline.runtime import stage
train.ProgressBar.show = lambda *_: os._exit(0)
sys.exit(stage.main("train", "", train.train, [sys.argv[1]]))
"""
NOBODY = "http://127.0.0.1:1"
"""A tracking server that refuses at once: what a delivery costs is no part of a start."""


def import_rows(rounds: int) -> list[Row]:
    """Measures fresh processes that import one module, minus an empty process."""
    used: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        nothing = seconds_of("-c", "pass")
        for name, what in IMPORTS.items():
            used[name].append(seconds_of("-c", f"import {what}") - nothing)
    return [
        Row(f"import {name}", "s", Measured(np.array(seconds))) for name, seconds in used.items()
    ]


def seconds_of(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> float:
    """Returns the duration of a Python process with these arguments.

    Raises:
        NotTheSame: it failed.
    """
    begin = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env or bare(), capture_output=True
    )
    seconds = time.perf_counter() - begin
    if ended.returncode:
        raise NotTheSame(
            f"{' '.join(arguments[-2:])}: exit {ended.returncode}, {ended.stderr.decode()}"
        )
    return seconds


def bare() -> dict[str, str]:
    """Returns the environment without the settings of jax and its cache of this benchmark's
    process.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}


def check_row(root: Path, rounds: int) -> Row:
    """Measures a process that refuses a wrong params.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        text = (root / "params.yaml").read_text()
        (Path(folder) / "params.yaml").write_text(
            text.replace("batch_size: 256", "batch_size: -256")
        )
        command = [sys.executable, "-m", "pipeline.commands.params", "check"]

        def check() -> None:
            ended = subprocess.run(command, cwd=folder, env=inputs(root), capture_output=True)
            if ended.returncode != 2 or b"batch_size = -256" not in ended.stderr:
                raise NotTheSame(f"params check: exit {ended.returncode}, {ended.stderr.decode()}")

        times = race({"ours": Contestant(check)}, rounds)
    return Row("wrong params.yaml refused", "s", times["ours"], goal=Goal(CHECK_SECONDS, "value"))


def inputs(root: Path) -> dict[str, str]:
    """Returns the environment of a stage that runs in another folder with this checkout's code."""
    paths = os.pathsep.join([str((root / "src").resolve()), str(root.resolve())])
    kept = {name: value for name, value in bare().items() if name != "DVC_ROOT"}
    return kept | {"PYTHONPATH": paths, "MLFLOW_TRACKING_URI": NOBODY}


def start_row(root: Path, model: str, starts: int) -> Row:
    """Measures a training stage from process start to first yield, with an empty and with a warm
    cache.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(root / "inputs", work / "inputs")
        with (work / "params.yaml").open("w") as file:
            YAML().dump(overlaid(read_raw(root, "default"), {model: SHORT[model]}), file)
        run(root, work, "-m", "pipeline.collect", model)
        used: dict[str, list[float]] = {"empty": [], "full": []}
        for _ in range(starts):
            shutil.rmtree(work / FOLDER)
            for cache, seconds in used.items():
                seconds.append(run(root, work, "-c", TO_THE_FIRST_YIELD, model))
                if not any(work.glob(f"{FOLDER}/*/*run_chunk*-cache")):
                    raise NotTheSame(
                        f"{model}: a start with {cache} cache left no compiled program of the"
                        " training"
                    )
    empty, full = (Measured(np.array(used[cache])) for cache in ("empty", "full"))
    name, against = f"start to first yield, {model}", "an empty compilation cache"
    return Row(name, "s", full, empty, goal=Goal(SOONER, "before"), against=against, tried=TRIED)


def run(root: Path, work: Path, *arguments: str) -> float:
    """Seconds that a stage takes which nothing precedes."""
    shutil.rmtree(work / ".state", ignore_errors=True)
    return seconds_of(*arguments, cwd=work, env=inputs(root))
