"""a result before its training -> the result after it: watched, saved, stopped and continued"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quatrain.api.configs import as_path, check_count, check_dataset, with_changes
from quatrain.api.progress_display import shown, write
from quatrain.api.results import SAVED, SCORES, Result
from quatrain.api.session import computing
from quatrain.comparison_sides import describe
from quatrain.errors import ConfigError, FolderError
from quatrain.params import Params
from quatrain.progress import History, Progress, Row, history, rows
from quatrain.registry import load, summary
from quatrain.seeds import derive_seed
from quatrain.storage import folders


class Record(NamedTuple):
    """Holds what a callback of `quatrain.fit` sees.

    step, steps: how far the training is, and how far it goes. metrics: name -> the last value since
    the record before; one that was not evaluated since is missing.
    """

    model: str
    step: int
    steps: int
    metrics: Mapping[str, float]


class Watch(NamedTuple):
    """Holds what happens while a model trains.

    returns_if_interrupted: whether a Ctrl-C ends the training, and not the call.
    """

    is_shown: bool = False
    callback: Callable[[Record], Any] | None = None
    checkpoint_every: int | None = None
    folder: Path | None = None
    returns_if_interrupted: bool = False


def watching(
    is_shown: bool,
    callback: Callable[[Record], Any] | None,
    checkpoint_every: int | None,
    folder: str | os.PathLike[str] | None,
) -> Watch:
    """Returns the arguments of a call that trains.

    Raises:
        ConfigError: one of them cannot be used.
        FolderError: the folder holds other files.
    """
    if callback is not None and not callable(callback):
        raise ConfigError(
            f"callback is of type {type(callback).__name__}; give a function of a record"
        )
    if checkpoint_every is not None:
        check_count("checkpoint_every", checkpoint_every)
        if folder is None:
            raise ConfigError("checkpoint_every needs a folder; give folder, too")
    path = None if folder is None else as_path(folder)
    if path is not None:
        folders.check_free(path, SAVED)
    return Watch(is_shown, callback, checkpoint_every, path, returns_if_interrupted=True)


def check_unfinished(folder: Path | None, resume_from: Result | str | Path | None) -> None:
    """Raises FolderError if a folder holds a result with its scores that is not gone on with."""
    if folder is None or isinstance(resume_from, Result):
        return
    goes_on = resume_from is not None and as_path(resume_from).resolve() == folder.resolve()
    if (folder / SCORES).exists() and not goes_on:
        raise FolderError(
            f"folder {folder} holds the result of a training",
            remedy=f"name another, or go on with it by resume_from={str(folder)!r}",
        )


def untrained(params: Params, model: str, dataset: Any = None) -> Result:
    """Returns a result before its first step, with a dataset or None: it is not yet collected."""
    return Result(model, params, dataset, state=None, history={}, step=0)


def continued(result: Result, params: Params) -> Result:
    """Returns a result that goes on under params, of which the length alone may be larger, and the
    environment where it was one of its process alone.

    Raises:
        ConfigError: it was trained with other values, or for longer.
    """
    model = result.model
    old, new = (each.model_dump() for each in (result.config, getattr(params, model)))
    if result.config.LENGTH:
        old["train"][result.config.LENGTH] = new["train"][result.config.LENGTH]
    if getattr(result.config.env, "in_process", ()):
        old["env"] = new["env"]
    if old != new:
        raise ConfigError(
            f"resume_from was trained with other values: {describe(old, new)}; leave them out, or "
            "train anew"
        )
    steps = getattr(params, model).train.steps
    if steps < result.step:
        raise ConfigError(
            f"resume_from was trained for {_trained(result):,} {result.config.LENGTH}; give at "
            f"least as many as train={{{result.config.LENGTH!r}: ...}}, or train anew"
        )
    return Result(model, params, result.dataset, result.state, result.history, step=result.step)


def lengthened(result: Result, more: int) -> Result:
    """Returns a result that goes on for so many more steps, in the unit of its `config.LENGTH`.

    Raises:
        ConfigError: the state has a fixed size, or the config refuses this length.
    """
    check_count("more", more)
    key = result.config.LENGTH
    if not key:
        raise ConfigError(
            f"{result.model} keeps all that it learns from in a state of fixed size, and cannot "
            "train longer; fit anew with a larger length"
        )
    length = _trained(result) + int(more)
    params = with_changes(result.params, result.model, {"train": {key: length}})
    return continued(result, params)


def _trained(result: Result) -> int:
    """Returns how far a result was trained, in the unit of its `config.LENGTH`."""
    train = result.config.train
    length: int = getattr(train, result.config.LENGTH)
    return result.step * length // train.steps


def train_and_score(begun: Result, watch: Watch) -> Result:
    """Does what the stages collect, train and evaluate do.

    Raises:
        KeyboardInterrupt: before there is anything learned, or while it is scored.
    """
    with computing(begun.params, begun.model):
        result = train(begun, watch)
        if watch.folder is not None:
            result.write(watch.folder)
        result.scores  # noqa: B018  computed here
        if watch.folder is not None:
            result.write(watch.folder)
    return result


def train(begun: Result, watch: Watch) -> Result:
    """Collects the dataset where there is none, and trains.

    Raises:
        ConfigError: no checkpoint would ever be due.
    """
    params, model, config = begun.params, begun.model, begun.config
    if watch.checkpoint_every is not None and watch.checkpoint_every > config.train.steps:
        raise ConfigError(
            f"checkpoint_every {watch.checkpoint_every:,} exceeds the {config.train.steps:,} steps "
            "of the training; lower it"
        )
    modules = load(model)
    dataset = begun.dataset
    if dataset is None:
        dataset = modules.collect.collect(config, derive_seed(params.seed, "collect", model))
    check_dataset(model, dataset, modules.collect.dataset_type(config))
    if watch.is_shown and (line := summary(model, config, dataset)):
        write(f"{model}: {line}")
    table = _table(begun.history)
    step, state, saved = begun.step, begun.state, begun.step

    def result() -> Result:
        return Result(model, params, dataset, state, history(table), step=step)

    learning = modules.train.train(config, dataset, derive_seed(params.seed, "train", model), state)
    try:
        for current in _shown(learning, begun, watch):
            new = rows(current, step)
            table += new
            step, state = current.step, current.state
            every, folder = watch.checkpoint_every, watch.folder
            if every is not None and folder is not None and step - saved >= every:
                result().write(folder)
                saved = step
            if _is_stopped(watch, model, config, current, new):
                break
    except KeyboardInterrupt:
        if state is None or not watch.returns_if_interrupted:
            raise
        warnings.warn(
            f"{model}: Ctrl-C at step {step:,} of {config.train.steps:,}; what was learned is "
            "scored and returned, and quatrain.fit(resume_from=result) goes on with it",
            stacklevel=4,
        )
    return result()


def _table(curves: History) -> list[Row]:
    return [
        (name, int(step), float(value))
        for name, (steps, values) in curves.items()
        for step, value in zip(steps, values, strict=True)
    ]


def _shown(learning: Any, begun: Result, watch: Watch) -> Iterator[Progress]:
    headline = load(begun.model).train.headline(begun.config)
    steps = begun.config.train.steps
    with closing(learning):
        yield from shown(learning, begun.model, steps, headline, watch.is_shown)


def _is_stopped(watch: Watch, model: str, config: Any, current: Progress, new: list[Row]) -> bool:
    """Returns whether the callback ends the training."""
    if watch.callback is None:
        return False
    metrics = {name: value for name, _, value in new}
    answer = watch.callback(Record(model, current.step, config.train.steps, metrics))
    return isinstance(answer, bool | np.bool_) and bool(answer)
