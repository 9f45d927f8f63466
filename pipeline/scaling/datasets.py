"""params -> the key of the dataset that a trial reads, so that equal ones are collected once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quatrain.params import Params
from quatrain.presets import parse
from quatrain.storage.folders import digest_of


def dataset_key(root: Path, params: Params, model: str) -> str:
    """Returns the digest of the values that dvc.yaml names for the stage `collect`.

    Code and input files are the same for all trials of a sweep; a value that names an input file
    is its content.
    """
    values = params.model_dump(mode="json")
    return digest_of({key: _value_at(values, key) for key in collect_params(root, model)})


def collect_params(root: Path, model: str) -> list[str]:
    stage = parse(root / "dvc.yaml")["stages"]["collect"]["do"]
    return [str(key).replace("${key}", model) for key in stage["params"]]


def _value_at(values: Mapping[str, Any], key: str) -> Any:
    value: Any = values
    for part in key.split("."):
        value = value[part]
    return value
