"""models/MODEL -> the verified state of the learner that a stage or a command continues with."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.storage import artifacts
from pipeline.storage.run_key import SHAPING as SHAPING
from pipeline.storage.run_key import shaping as shaping
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import load

CONFIG = "config.json"
FILES = (CONFIG, "history.csv", "state.safetensors", "weights.safetensors")
LONGEST_VALUE = 60


class LearnerInfo(BaseModel):
    """Holds what the manifest of a learner says of its training; params: the keys in SHAPING."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    run_key: str
    dataset: str
    settings: dict[str, str]
    params: dict[str, int | bool]


class TrainedModel(NamedTuple):
    state: Any
    files: artifacts.Loaded


def load_trained(
    folder: Path, model: str, params: Params, dataset: Any, digest: str
) -> TrainedModel:
    """Returns the learner in a folder that was trained under these params on the dataset with this
    digest.

    Raises:
        DataError: the files are damaged, or belong to other params or another dataset.
    """
    files = artifacts.load(folder, FILES)
    if files.info.get("dataset") != digest:
        reason = f"was trained on another dataset than data/{model} holds"
        raise _refused(model, params, reason)
    check_origin(model, params, files)
    config = getattr(params, model)
    arrays = files.contents["weights.safetensors"] | files.contents["state.safetensors"]
    try:
        return TrainedModel(load(model, config).train.from_arrays(config, dataset, arrays), files)
    except ValueError as error:
        raise _refused(model, params, str(error)) from None


def verified_origin(folder: Path, model: str, params: Params) -> artifacts.Loaded:
    """Returns digest and info of a learner that was trained under these params, with every file of
    its folder hashed.

    Raises:
        DataError: as `load_trained`.
    """
    files = artifacts.verify(folder, [CONFIG])
    check_origin(model, params, files)
    return files


def check_origin(model: str, params: Params, files: artifacts.Loaded) -> None:
    """Checks that a learner was trained under these params: the model's section and SHAPING.

    Raises:
        DataError: a value differs, or the folder does not say how it was trained.
    """
    try:
        info = LearnerInfo.model_validate(files.info)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"its manifest does not tell how it was trained (info.{key}: {first['msg']})"
        raise _refused(model, params, reason) from None
    trained = {**info.params, model: files.contents[CONFIG]}
    current = {**shaping(params), model: getattr(params, model).model_dump(mode="json")}
    for key, old, new in differences(trained, current):
        reason = f"was trained with {key} = {old}, but params.yaml has {new}"
        raise _refused(model, params, reason, "set that back, or ")


def differences(old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yields each key whose values differ in value or type, with both as JSON."""
    before, after = leaves(old), leaves(new)
    for key in sorted(before.keys() | after.keys()):
        sides = (shortened(before.get(key, "nothing")), shortened(after.get(key, "nothing")))
        if before.get(key) != after.get(key):
            yield key, *sides


def leaves(value: Any, key: str = "") -> dict[str, str]:
    """Returns the values of nested mappings as JSON whose keys are sorted, as those of a stored
    config are, by keys that are joined by dots.
    """
    if not isinstance(value, Mapping) or not value:
        return {key: json.dumps(value, sort_keys=True)}
    nested = (leaves(part, f"{key}.{name}" if key else name) for name, part in value.items())
    return {name: text for part in nested for name, text in part.items()}


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _refused(model: str, params: Params, reason: str, alternative: str = "") -> DataError:
    is_default = params.preset == "default"
    command = f"dvc repro train@{model}" if is_default else f"make repro PRESET={params.preset}"
    return DataError(f"models/{model}: {reason}; {alternative}run `{command}`")
