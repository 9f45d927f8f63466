"""params, dataset -> a training outside DVC and MLflow, and the key of its result."""

from typing import Any

from pipeline.runtime.devices import settings
from pipeline.runtime.stage import CHECKOUT
from pipeline.storage.run_key import loaded_code, run_key
from pipeline.tracking.progress_bar import ProgressBar
from quatrain.params import Params
from quatrain.progress import History, Row, history, rows
from quatrain.registry import MODELS, load


def result_key(sweep: str, params: Params, model: str) -> str:
    """Returns the key of a result: config, seed, code, device and versions."""
    # Modules that shape the result must be imported before the key is computed.
    for name in ("collect", "train", "evaluate", "plots"):
        getattr(load(model), name)
    return run_key(
        stage=sweep,
        params={
            "config": getattr(params, model).model_dump(mode="json"),
            "seed": params.seed,
        },
        code=loaded_code(CHECKOUT, model),
        inputs=[],
        settings=settings(params, MODELS[model]),
    )


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
