"""params of one training -> its key, its folder below .state/trials, and its outcome there.

The result is the ledger: a trial with an outcome is not run again, whoever asks for it.
"""

import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pipeline.runtime.devices import settings
from pipeline.storage.params_file import check_inputs, read_input, write_raw
from pipeline.storage.run_key import CHECKOUT, IRRELEVANT, code_digest, inputs_of, params_of
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.presets import parse
from quatrain.registry import MODELS
from quatrain.section import Content
from quatrain.storage import folders
from quatrain.storage.input_files import read_content
from quatrain.validation import validate

TRIALS = Path(".state/trials")
OUTCOME = "outcome.json"
USAGE = "usage.json"


class Trial(NamedTuple):
    """Holds one training of a model: its data, its learner and its scores.

    raw: params.yaml of the trial, whole. params: the same, validated. files: its input files, by
    their paths below the trial's folder. key: of all that the result depends on; trials of one key
    give the same bytes. data_key: of all that the dataset depends on. checkout: whose code runs it;
    this one if it is None.
    """

    model: str
    raw: Mapping[str, Any]
    params: Params
    files: Mapping[str, Path]
    key: str
    data_key: str
    checkout: Path | None = None


class Point(NamedTuple):
    """Holds one row of the watched train metric."""

    step: int
    value: float


class Outcome(NamedTuple):
    """Holds how an attempt at a trial ended: with scores, or with a reason.

    `finished` and `diverged` are stored and stay; what was `stopped` continues later, and what was
    `refused`, `failed` or lost too often is tried again by the next command.

    cpu_seconds: of each stage, with the start of its process, over all attempts; a dataset that
    several trials share counts in each. seconds: of this attempt. peak_memory: bytes of the largest
    process.
    """

    state: Literal["finished", "stopped", "diverged", "refused", "failed"]
    scores: Mapping[str, float | None] = {}
    cpu_seconds: Mapping[str, float] = {}
    seconds: float = 0.0
    peak_memory: int = 0
    reason: str = ""


def make_trial(
    root: Path, model: str, raw: Mapping[str, Any], files: Mapping[str, Path] | None = None
) -> Trial:
    """Returns the trial of a model with these params.

    files: input files that lie elsewhere, by their paths below inputs/MODEL; the others are those
    of the checkout.

    Raises:
        ConfigError: the params cannot be used.
    """
    inputs = inputs_of(root, model) | dict(files or {})

    def read(name: object) -> Content:
        path = (files or {}).get(str(name))
        return read_input(root, str(name)) if path is None else read_content(path)

    params = validate(raw, read)
    check_inputs(model, getattr(params, model).model_dump())
    return with_keys(root, Trial(model, raw, params, inputs, "", ""))


def with_keys(root: Path, trial: Trial) -> Trial:
    """Returns the trial with the keys that its code, files and params give it now."""
    model, params = trial.model, trial.params
    of_all = params_of(params, model)
    if trial.checkout is not None:  # whose params may have another form
        unneeded = IRRELEVANT | MODELS.keys() - {model}
        of_all = {key: value for key, value in trial.raw.items() if key not in unneeded}
    collect_params = _collect_params(trial.checkout or CHECKOUT, model)
    of_collect = {name: value_at(trial.raw, name) for name in collect_params}
    return trial._replace(
        key=_key(root, ("collect", "train", "evaluate"), trial, of_all),
        data_key=_key(root, ("collect",), trial, of_collect),
    )


def check_current(root: Path, trial: Trial) -> None:
    """Raises DataError if code or input files are others than when the trial was made: its key
    would stand for bytes of another.
    """
    if with_keys(root, trial).key != trial.key:
        raise DataError(
            f"code or inputs of {trial.model} changed while its trials ran",
            remedy="run the same command again, for trials of the present ones",
        )


def _key(root: Path, verbs: tuple[str, ...], trial: Trial, values: Any) -> str:
    """Returns the key of what these stages make: it depends on these values of params.yaml."""
    model, params, checkout = trial.model, trial.params, trial.checkout
    depends_on = {
        "model": model,
        "params": values,
        "code": {
            verb: code_digest(checkout or root, model, params, verb, checkout or CHECKOUT)
            for verb in verbs
        },
        "files": {name: folders.file_digest(path) for name, path in trial.files.items()},
        "settings": settings(params, MODELS[model]),
    }
    return folders.digest_of(depends_on)[:16]


@cache
def _collect_params(checkout: Path, model: str) -> tuple[str, ...]:
    """Returns the keys that a dataset depends on, which dvc.yaml names."""
    stage = parse(checkout / "dvc.yaml")["stages"]["collect"]["do"]
    return tuple(str(key).replace("${key}", model) for key in stage["params"])


def value_at(section: Any, key: str) -> Any:
    """Returns the value at `a.b`; None where a section on the way is not there."""
    for part in key.split("."):
        section = section.get(part) if isinstance(section, Mapping) else None
    return section


# The folder of a trial.


def folder_of(root: Path, trial: Trial) -> Path:
    return root / TRIALS / trial.key


def dataset_folder(root: Path, trial: Trial) -> Path:
    """Returns the folder in which the trial's dataset is collected, once for all who share it."""
    return root / TRIALS / "data" / trial.data_key


def prepare(trial: Trial, folder: Path) -> None:
    """Writes the params and input files of a trial into its folder."""
    write_raw(folder / "params.yaml", trial.raw)
    for name, source in trial.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def link_dataset(trial: Trial, folder: Path, dataset: Path) -> None:
    """Puts the dataset that was collected in one folder into the folder of a trial."""
    target = folder / "data" / trial.model
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.unlink(missing_ok=True)  # a link to a folder that is gone
        target.symlink_to(os.path.relpath(dataset / "data" / trial.model, target.parent))


def write_outcome(folder: Path, outcome: Outcome) -> None:
    folders.write_json(folder / OUTCOME, outcome._asdict())


def read_outcome(folder: Path) -> Outcome | None:
    """Returns how a trial ended for good; None if it has not ended so far."""
    try:
        return Outcome(**folders.read_json(folder / OUTCOME))
    except (DataError, TypeError):
        return None


def usage_of(folder: Path) -> dict[str, tuple[float, int]]:
    """Returns by verb the CPU seconds of a folder's processes, and the bytes of the largest."""
    try:
        return dict(folders.read_json(folder / USAGE))
    except (DataError, TypeError, ValueError):
        return {}


def add_usage(folder: Path, verb: str, seconds: float, memory: int) -> None:
    used = usage_of(folder)
    seconds_before, memory_before = used.get(verb, (0.0, 0))
    used[verb] = seconds_before + seconds, max(memory_before, memory)
    folders.write_json(folder / USAGE, used)
