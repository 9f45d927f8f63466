"""models/MODEL -> the verified state of the learner that a stage or a command continues with."""

from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts
from quatrain.registry import load

# What a stage or a command continues with.
FILES = ("weights.safetensors", "state.safetensors", "config.json", "history.csv")


class TrainedModel(NamedTuple):
    state: Any
    files: artifacts.Loaded


def load_trained(folder: Path, model: str, config: Any, dataset: Any, digest: str) -> TrainedModel:
    """Returns the learner in a folder that was trained on the dataset with this digest.

    Raises:
        ArtifactError: the files are damaged, or belong to another config or dataset.
    """
    files = artifacts.load(folder, FILES)
    arrays = files.contents["weights.safetensors"] | files.contents["state.safetensors"]
    try:
        if files.info.get("dataset") != digest:
            raise ValueError(f"was trained on another dataset than data/{model} holds")
        return TrainedModel(load(model, config).train.from_arrays(config, dataset, arrays), files)
    except ValueError as error:
        raise ArtifactError(f"models/{model}: {error}; run `dvc repro train@{model}`") from None
