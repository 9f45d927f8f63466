"""params, dataset -> a training outside DVC and MLflow, and the key of its result."""

import time
from typing import Any, NamedTuple

import numpy as np

from pipeline.runtime.devices import settings
from pipeline.storage.checkpoints import Checkpoints
from pipeline.storage.run_key import CHECKOUT, sources_of
from pipeline.tracking.monitoring import ProgressBar
from quatrain.params import Params
from quatrain.progress import History, Row, history, rows
from quatrain.registry import MODELS, load
from quatrain.storage.folders import digest_of

# Beside the arrays of a state in a checkpoint.
CPU_SECONDS = "cpu_seconds"


def result_key(study: str, params: Params, model: str) -> str:
    """Returns the key of a result: config, seed, code, device and versions."""
    return digest_of(
        {
            "stage": study,
            "config": getattr(params, model).model_dump(mode="json"),
            "seed": params.seed,
            "sources": sources_of(CHECKOUT, model, params, "evaluate"),
            "settings": settings(params, MODELS[model]),
        }
    )


class Result(NamedTuple):
    """Holds what one repetition collected, learned, recorded and scored."""

    dataset: Any
    state: Any
    curves: History
    scores: dict[str, float]


def train_and_score(params: Params, model: str, title: str) -> Result:
    """Collects, trains and evaluates, each with a seed of its own; `params.seed` is the first."""
    config = getattr(params, model)
    dataset = load(model, config).collect.collect(config, params.seed)
    state, curves = train(params, model, title, dataset)
    scores = load(model, config).evaluate.evaluate(config, state, dataset, params.seed + 2)
    return Result(dataset, state, curves, scores)


def train(params: Params, model: str, title: str, dataset: Any) -> tuple[Any, History]:
    """Trains to the end, with a progress bar; returns the state and the history by metric."""
    module, config = load(model).train, getattr(params, model)
    records: list[Row] = []
    start = 0
    with ProgressBar(title, config.train.steps, start, module.HEADLINE) as bar:
        for progress in module.train(config, dataset, params.seed + 1):
            records += rows(progress, start)
            bar.show(progress)
            start = progress.step
    return progress.state, history(records)


class Trained(NamedTuple):
    """Holds a trained state and the CPU seconds of all threads that it took."""

    state: Any
    cpu_seconds: float


def train_resumed(params: Params, model: str, dataset: Any, checkpoints: Checkpoints) -> Trained:
    """Trains to the end from the newest checkpoint, and saves one every `checkpoint_seconds`."""
    module, config = load(model).train, getattr(params, model)
    state, step, spent = None, 0, 0.0
    checkpoint = checkpoints.latest()
    if checkpoint is not None:
        arrays = dict(checkpoint.arrays)
        spent = float(arrays.pop(CPU_SECONDS))
        state, step = module.from_arrays(config, dataset, arrays), checkpoint.step
    began, saved_at = time.process_time(), time.monotonic()
    with ProgressBar(model, config.train.steps, step, module.HEADLINE) as bar:
        for progress in module.train(config, dataset, params.seed + 1, state):
            state = progress.state
            bar.show(progress)
            if time.monotonic() - saved_at >= params.checkpoint_seconds:
                seconds = np.array(spent + time.process_time() - began)
                checkpoints.save(progress.step, module.to_arrays(state) | {CPU_SECONDS: seconds})
                saved_at = time.monotonic()
    return Trained(state, spent + time.process_time() - began)
