"""models/MODEL -> the verified state of the learner that `evaluate` continues with."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime.hints import make_command
from pipeline.storage.run_key import shaping
from quatrain.differences import differing
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import load
from quatrain.storage import folders

CONFIG = "config.json"
FILES = (CONFIG, "history.csv", "state.safetensors", "weights.safetensors")
LONGEST_VALUE = 60


class TrainedModel(NamedTuple):
    state: Any
    files: folders.Loaded


def load_trained(
    folder: Path, model: str, params: Params, dataset: Any, digest: str
) -> TrainedModel:
    """Returns the learner in a folder that was trained under these params on the dataset with this
    digest.

    Raises:
        DataError: the files are damaged, or belong to other params or another dataset.
    """
    files = folders.load(folder, FILES)
    remedy = f"dvc repro --force --single-item train@{model}"
    if params.preset != "default":
        remedy = make_command("repro", params.preset, model)
    name = f"models/{model}"
    if files.info.get("dataset") != digest:
        reason = f"{name}: was trained on another dataset than data/{model} holds"
        raise DataError(reason, remedy=f"run `{remedy}`")
    trained = {**files.info.get("params", {}), model: files.contents[CONFIG]}
    config = getattr(params, model)
    current = {**shaping(params), model: config.model_dump(mode="json")}
    if differences := differing(trained, current):
        key, values = min(differences.items())
        old, new = (json.dumps(value, sort_keys=True)[:LONGEST_VALUE] for value in values)
        reason = f"{name}: was trained with {key} = {old}, but params.yaml has {new}"
        raise DataError(reason, remedy=f"set that back, or run `{remedy}`")
    arrays = files.contents["weights.safetensors"] | files.contents["state.safetensors"]
    try:
        return TrainedModel(load(model).train.from_arrays(config, dataset, arrays), files)
    except ValueError as error:
        raise DataError(f"{name}: {error}", remedy=f"run `{remedy}`") from None
