"""each model's default preset with several seeds -> benchmarks/results/seeds.json, and the table in
docs/results.md.

A model with a result of the same params and code is not run again; an interrupted one continues.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.judging.gate import rules_of
from pipeline.reporting.result_files import write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.stage import prepare_process
from pipeline.storage.checkpoints import Checkpoints
from pipeline.storage.params_file import read_params
from pipeline.studies import seeds
from pipeline.studies.seeds import PAGE, RESULTS, SeedResult
from pipeline.studies.training import result_key, train_resumed
from quatrain.devices import on_device
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.registry import MODELS, load
from quatrain.statistics import LEAST_SEEDS
from quatrain.storage import formats
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

# Checkpoints of what is not done.
CACHE = Path(".state/results")


def measure(root: Path, models: Sequence[str], count: int, is_page_only: bool) -> None:
    """Runs the models, stores each result at once, and writes the table.

    Raises:
        ConfigError: there are too few seeds for an interval, or params.yaml cannot be used.
        DataError: the page has no place for the table, or the results have another form.
    """
    if count < LEAST_SEEDS:
        raise ConfigError(f"--seeds {count}: intervals need at least {LEAST_SEEDS}")
    seeds.with_table(read_text(root / PAGE), "")  # a page without a place costs no training
    done = seeds.read(root)
    prepare_process(params_for(root, models[0], count))
    for number, model in enumerate([] if is_page_only else models, 1):
        console.info(f"[{number}/{len(models)}] {model}")
        params = params_for(root, model, count)
        with on_device(params, MODELS[model]):
            key = result_key("results", params, model)
            if model not in done or done[model].key != key:
                done[model] = run_model(root, params, model, key)
        write_lines(root / RESULTS, done, depth=3)
    print(write_page(root))


def params_for(root: Path, model: str, count: int) -> Params:
    """Returns params.yaml with at least so many seeds of a model.

    Raises:
        ConfigError: params.yaml cannot be used.
    """
    changes = {"seeds": max(count, getattr(read_params(root), model).seeds)}
    return read_params(root, None, {model: changes})


def run_model(root: Path, params: Params, model: str, key: str) -> SeedResult:
    """Collects, trains from the newest checkpoint if there is one, and evaluates."""
    config = getattr(params, model)
    modules: Any = load(model, config)
    checkpoints = Checkpoints(root / CACHE / model / key)
    dataset = modules.collect.collect(config, params.seed)
    trained = train_resumed(params, model, dataset, checkpoints)
    began = time.process_time()
    scores = modules.evaluate.evaluate(config, trained.state, dataset, params.seed + 2)
    result = SeedResult(
        key=key,
        machine=settings(params, MODELS[model]),
        seeds=config.seeds,
        train_cpu_seconds=trained.cpu_seconds,
        evaluate_cpu_seconds=time.process_time() - began,
        scores=formats.null_if_not_finite(scores),
    )
    checkpoints.clear()
    return result


def write_page(root: Path) -> str:
    """Writes the table of the stored results into the page and returns it."""
    done = seeds.read(root)
    rules = {model: rules_of(model, "default") for model in done}
    text = seeds.render(root, done, rules)
    page = root / PAGE
    write_durably(page, seeds.with_table(read_text(page), text).encode())
    return text
