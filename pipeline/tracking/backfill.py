"""models/MODEL, reports/MODEL as DVC restored them -> the run that their stages would record.

A stage that DVC restores from its run cache, or from a remote, does not run and records nothing.
"""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.judging import verdicts
from pipeline.runtime import console, stage
from pipeline.runtime.errors import StoreUnavailable
from pipeline.runtime.redaction import shown
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.storage.trained_model import TrainedModel, load_trained, verified_origin
from pipeline.tracking.charts import chart_rows
from pipeline.tracking.experiment import EXPERIMENT
from pipeline.tracking.export import record_model
from pipeline.tracking.journal import Journal, now
from pipeline.tracking.registry import RUN_KEY_TAG
from pipeline.tracking.run import Run, journals, last_line
from pipeline.tracking.scores import record_scores
from pipeline.tracking.store import check_reachable, open_client, reason_of, resolve_uri
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.storage import history
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.formats import to_json

CACHE_HIT = "quatrain.cache_hit"
# File in .state with results whose run the store has already, so that it is asked only once.
CACHE = "recorded_elsewhere.json"
# Value that MLflow stores for an infinity.
LARGEST = sys.float_info.max
FINISHED = b'"status": "FINISHED"'


# Finding missing records imports neither mlflow nor a framework.


def missing_records(root: Path, params: Params, model: str, uri: str) -> list[str]:
    """Returns the verbs of a model whose current results are recorded neither here nor at `uri`.

    Results of other params are ignored.
    """
    missing = []
    with suppress(DataError, verdicts.StaleVerdict, KeyError, TypeError):
        key = verified_origin(root / "models" / model, model, params).info["run_key"]
        journal = journals(root) / f"train@{model}-{key[:16]}" / "journal.jsonl"
        if not journal.is_file() or FINISHED not in last_line(journal):
            missing.append("train")
        scores = scores_of(root, params, model)
        evaluations = journals(root).glob(f"evaluate@{model}-*/*.jsonl")
        if not any(has_scores(Journal(path.parent), key, scores) for path in evaluations):
            missing.append("evaluate")
    cached = read_cache(root, uri)
    return [verb for verb in missing if result_name(root, verb, model) not in cached]


def has_scores(journal: Journal, run_key: str, scores: Mapping[str, float | None]) -> bool:
    if journal.header is None or journal.header.run_key != run_key:
        return False
    recorded = {
        name.removeprefix("eval/"): points[-1][1]
        for name, points in journal.history().items()
        if name.removeprefix("eval/") in scores
    }
    return artifacts.null_if_not_finite(recorded) == dict(scores)


def scores_of(root: Path, params: Params, model: str) -> dict[str, float | None]:
    """Returns the current judged scores if they belong to the current learner.

    Raises:
        StaleVerdict: they do not.
        DataError: a file cannot be read.
    """
    rules = verdicts.stored_verdict(root, model, params.preset, params).rules
    scores = verdicts.read_scores(verdicts.files(root, model).scores)
    return {rule.metric: scores.get(rule.metric) for rule in rules}


def result_name(root: Path, verb: str, model: str) -> str:
    """Returns a name with the digest of what a verb wrote."""
    trained = root / "models" / model / artifacts.MANIFEST
    path = verdicts.files(root, model).scores if verb == "evaluate" else trained
    return f"{verb}@{model}/{artifacts.file_digest(path)}"


def read_cache(root: Path, uri: str) -> set[str]:
    """Returns the results whose run this store had before."""
    with suppress(DataError, KeyError, TypeError):
        content = artifacts.read_json(root / ".state" / CACHE)
        if content["uri"] == shown(uri):
            return set(content["results"])
    return set()


def catch_up(work: Path, models: Sequence[str], environment: Mapping[str, str]) -> int:
    """Records what is missing in a workspace, in a process per model.

    Returns the first exit code that is not 0.
    """
    params = read_params(work)
    first_failure = 0
    for model in models:
        if first_failure == StoreUnavailable.exit_code:
            break  # The store would keep the others waiting, too.
        if missing_records(work, params, model, environment["MLFLOW_TRACKING_URI"]):
            process = subprocess.run(
                [sys.executable, "-m", "pipeline.tracking.backfill", model],
                cwd=work,
                env=dict(environment),
                check=False,
            )
            first_failure = first_failure or process.returncode
    return first_failure


# Recording is done in a process of one model.


def backfill(stage: Stage, signals: Signals) -> None:
    """Records the current training and evaluation unless a journal or the store has them.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    uri = resolve_uri(stage.root)
    missing = missing_records(stage.root, stage.params, stage.model, uri)
    if not missing:
        return
    dataset, digest = stage.load_dataset()
    trained = load_trained(stage.weights, stage.model, stage.params, dataset, digest)
    metrics = metrics_in_store(uri, trained.files.info["run_key"])
    for verb in missing:
        signals.check()
        if is_in_store(stage, verb, trained, metrics):
            result = result_name(stage.root, verb, stage.model)
            cached = {"uri": shown(uri), "results": sorted({*read_cache(stage.root, uri), result})}
            write_durably(stage.root / ".state" / CACHE, to_json(cached))
            continue
        console.info(
            f"{stage.name}: {verb}@{stage.model} was restored from a cache; its run is recorded now"
        )
        record = record_training if verb == "train" else record_evaluation
        record(stage._replace(verb=verb), trained, dataset, digest)


def metrics_in_store(uri: str, run_key: str) -> dict[str, float]:
    """Returns the last value of each metric of a run; nothing if the store has no such run.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    try:
        check_reachable(uri)
        client = open_client(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        query = f"tags.`{RUN_KEY_TAG}` = '{run_key}'"
        runs = client.search_runs([experiment.experiment_id], query) if experiment else []
    except Exception as error:
        raise StoreUnavailable(
            f"the tracking store cannot be asked ({reason_of(error, uri)}); "
            "run `make sync` when that is mended"
        ) from None
    return {
        name: math.copysign(math.inf, value) if abs(value) >= LARGEST else value
        for run in runs
        for name, value in run.data.metrics.items()
    }


def is_in_store(
    stage: Stage, verb: str, trained: TrainedModel, metrics: Mapping[str, float]
) -> bool:
    """Returns whether the store has the last values of all curves, or exactly these scores."""
    if verb == "train":
        table = history.table(trained.files.contents["history.csv"])
        charts = chart_rows(table, stage.modules.train.HEADLINE)
        expected = {f"train/{name}": value for name, _, value in charts}
    else:
        expected = {f"eval/{name}": value for name, value in current_scores(stage)}
    stored = {name: metrics[name] for name in expected if name in metrics}
    return artifacts.null_if_not_finite(stored) == artifacts.null_if_not_finite(expected)


def current_scores(stage: Stage) -> list[tuple[str, float]]:
    return [
        (name, math.nan if value is None else value)
        for name, value in scores_of(stage.root, stage.params, stage.model).items()
    ]


def record_training(stage: Stage, trained: TrainedModel, dataset: Any, digest: str) -> None:
    """Records what `train` would have recorded, except for times, which are unknown."""
    key = trained.files.info["run_key"]
    settings = {f"quatrain.{k}": v for k, v in trained.files.info["settings"].items()}
    started = now()
    tags = {**settings, CACHE_HIT: "true"}
    with Run.of_stage(stage, key, key, digest, tags, started) as run:
        run.ended = started
        table = history.table(trained.files.contents["history.csv"])
        run.curves(table, stage.modules.train.HEADLINE)
        for name in ("weights.safetensors", "config.json"):
            run.artifact(stage.weights / name, "model")
        record_model(stage, run, trained.state, dataset, digest)


def record_evaluation(stage: Stage, trained: TrainedModel, _dataset: Any, digest: str) -> None:
    """Records what `evaluate` would have recorded, under the key that it would have."""
    preset = stage.params.preset
    rules = verdicts.stored_verdict(stage.root, stage.model, preset, stage.params).rules
    paths = verdicts.files(stage.root, stage.model)
    result = verdicts.judge_files(paths, stage.model, preset, rules)
    started = now()
    with Run.of_stage(
        stage,
        trained.files.info["run_key"],
        stage.key([digest, trained.files.digest]),
        digest,
        {f"{CACHE_HIT}.evaluate": "true"},
        started,
    ) as run:
        run.ended = started
        record_scores(stage, run, result)


if __name__ == "__main__":
    sys.exit(stage.main("backfill", __doc__ or "", backfill))
