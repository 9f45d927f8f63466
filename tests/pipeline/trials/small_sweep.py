"""A sweep's file with some keys changed, and the space that it gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.trials.space import Space, read_space
from tests.conftest import ROOT

RATE, HIDDEN = "train.learning_rate", "network.hidden"
RATES: dict[str, Any] = {"between": [1e-4, 1e-2], "scale": "log"}
SWEEP: dict[str, Any] = {
    "model": "allo",
    "preset": "smoke",
    "judge": "cosine_mean",
    "watch": "cosine_mean",
    "seeds": 3,
    "trials": 6,
    "seed": 0,
    "search": "random",
    "schedule": {"kind": "asha", "first": 500, "factor": 3},
    "confirm": {"top": 2, "seed": 1, "seeds": 5},
    "cpus": 1,
    "gpus": 0,
    "retries": 3,
    "space": {RATE: RATES, HIDDEN: {"of": [32, 64, 128]}},
}
IQN: dict[str, Any] = {"model": "iqn", "judge": "score", "schedule": {"kind": "none"}}


def sweep_file(folder: Path, changes: Mapping[str, Any], name: str = "tried.yaml") -> Path:
    """Write SWEEP with some of its keys replaced."""
    path = folder / name
    YAML().dump(SWEEP | changes, path)
    return path


def space_of(folder: Path, root: Path = ROOT, **changes: Any) -> Space:
    return read_space(root, sweep_file(folder, changes))
