"""models/MODEL, reports/MODEL as DVC restored them -> the run that their stages would have recorded.

A stage that DVC restores from its run cache, or from a remote, does not run, and so records nothing.
"""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.judging import verdicts
from pipeline.judging.verdicts import StaleVerdict
from pipeline.runtime import console, stage
from pipeline.runtime.errors import ArtifactError, StoreUnavailable
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage import artifacts, history
from pipeline.storage.artifacts import MANIFEST, null_if_not_finite
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.formats import to_json
from pipeline.storage.params_file import read_params
from pipeline.storage.trained_model import TrainedModel, load_trained
from pipeline.tracking.delivery import RUN_KEY_TAG
from pipeline.tracking.journal import Journal, redact
from pipeline.tracking.model_export import record_model
from pipeline.tracking.run import EXPERIMENT, Run, journals, tail
from pipeline.tracking.shipper import resolve_uri
from pipeline.tracking.store import knock, open_client, reason_of
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.registry import load

CACHE_HIT = "quatrain.cache_hit"
NOTE = "recorded_elsewhere.json"
"""In .state: results whose run the tracking store had already, so that it is not asked again."""
LARGEST = sys.float_info.max
"""What MLflow makes of an infinity."""
FINISHED = b'"status": "FINISHED"'


# What is missing: told without mlflow and frameworks.


def lacking(root: Path, params: Params, model: str, uri: str) -> list[str]:
    """The verbs of a model whose results are at hand, made with these params, and are on no record here or at `uri`."""
    found = []
    with suppress(ArtifactError, DataError, StaleVerdict, KeyError, TypeError):
        key = artifacts.read_json(root / "models" / model / MANIFEST)["info"]["run_key"]
        config = artifacts.read_json(root / "models" / model / "config.json")
        if config != getattr(params, model).model_dump(mode="json"):
            return []
        if not is_recorded(root, model, key):
            found.append("train")
        scores = scores_of(root, params, model)
        if not any(
            evaluated(path.parent, key, scores)
            for path in journals(root).glob(f"evaluate@{model}-*/*.jsonl")
        ):
            found.append("evaluate")
    known = noted(root, uri)
    return [verb for verb in found if result_of(root, verb, model) not in known]


def is_recorded(root: Path, model: str, run_key: str) -> bool:
    """Whether a journal has this training to its end."""
    path = journals(root) / f"train@{model}-{run_key[:16]}" / "journal.jsonl"
    return path.is_file() and FINISHED in tail(path)


def evaluated(folder: Path, run_key: str, scores: Mapping[str, float | None]) -> bool:
    """Whether a journal has these very scores of this run."""
    journal = Journal(folder)
    recorded = {name: points[-1][1] for name, points in journal.history().items()}
    shown = null_if_not_finite(
        {
            name.removeprefix("eval/"): value
            for name, value in recorded.items()
            if name[:5] == "eval/"
        }
    )
    return (
        journal.header is not None and journal.header.run_key == run_key and shown == dict(scores)
    )


def scores_of(root: Path, params: Params, model: str) -> dict[str, float | None]:
    """The scores at hand, if they are those of the learner at hand.

    Raises:
        StaleVerdict: they are not.
        ArtifactError: a file cannot be read.
    """
    verdicts.stored_verdict(root, model, params.preset)
    return verdicts.read_scores(verdicts.files(root, model).scores)


def result_of(root: Path, verb: str, model: str) -> str:
    """Names what a verb made."""
    made = (
        root / "models" / model / MANIFEST
        if verb == "train"
        else verdicts.files(root, model).scores
    )
    return f"{verb}@{model}/{artifacts.file_digest(made)}"


def noted(root: Path, uri: str) -> set[str]:
    """Results whose run this store has without our doing."""
    with suppress(ArtifactError, KeyError, TypeError):
        note = artifacts.read_json(root / ".state" / NOTE)
        if note["uri"] == redact(uri):
            return set(note["results"])
    return set()


def note(root: Path, uri: str, result: str) -> None:
    """Remember that the store has a result."""
    content = {"uri": redact(uri), "results": sorted({*noted(root, uri), result})}
    write_durably(root / ".state" / NOTE, to_json(content))


def catch_up(work: Path, models: Sequence[str], environment: Mapping[str, str]) -> int:
    """Record what is missing in a workspace, in a process for each model; the first exit code that is not 0."""
    params, codes = read_params(work), []
    for model in models:
        if lacking(work, params, model, environment["MLFLOW_TRACKING_URI"]):
            command = [sys.executable, "-m", "pipeline.tracking.backfill", model]
            codes.append(
                subprocess.run(command, cwd=work, env=dict(environment), check=False).returncode
            )
    return next((code for code in codes if code), 0)


# In the process of one model.


def backfill(stage: Stage, signals: Signals) -> None:
    """Record the training and the evaluation at hand, as far as neither we nor the store have them.

    Raises:
        StoreUnavailable: the store cannot be asked.
    """
    uri = resolve_uri(stage.root)
    missing = lacking(stage.root, stage.params, stage.model, uri)
    if not missing:
        return
    dataset, digest = stage.load_dataset()
    trained = load_trained(stage.weights, stage.model, stage.config, dataset, digest)
    there = metrics_in_store(uri, trained.files.info["run_key"])
    for verb in missing:
        signals.check()
        if is_there(stage, verb, trained, there):
            note(stage.root, uri, result_of(stage.root, verb, stage.model))
            continue
        console.info(
            f"{stage.name}: {verb}@{stage.model} was restored from a cache; its run is recorded now"
        )
        RECORD[verb](stage._replace(verb=verb), trained, dataset, digest)


def metrics_in_store(uri: str, run_key: str) -> dict[str, float]:
    """The last value of each metric of a run in the store, as it was given; none where it has no such run.

    Raises:
        StoreUnavailable: the store cannot be asked.
    """
    try:
        knock(uri)
        client = open_client(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        runs = experiment and client.search_runs(
            [experiment.experiment_id], f"tags.`{RUN_KEY_TAG}` = '{run_key}'"
        )
    except Exception as error:  # of whatever kind: without an answer nothing is recorded
        reason = reason_of(error, uri)
        raise StoreUnavailable(
            f"the tracking store cannot be asked ({reason}); run `make sync` when that is mended"
        ) from None
    there = {name: value for run in runs or () for name, value in run.data.metrics.items()}
    return {
        name: value if abs(value) < LARGEST or math.isnan(value) else math.copysign(math.inf, value)
        for name, value in there.items()
    }


def is_there(stage: Stage, verb: str, trained: TrainedModel, metrics: Mapping[str, float]) -> bool:
    """Whether the store has all that a verb made: the last values of its curves, or these very scores."""
    if verb == "train":
        curves = history.from_csv(trained.files.contents["history.csv"])
        made = {f"train/{name}": float(values[-1]) for name, (_, values) in curves.items()}
    else:
        scores = scores_of(stage.root, stage.params, stage.model)
        made = {
            f"eval/{name}": math.nan if value is None else value for name, value in scores.items()
        }
    there = {name: metrics[name] for name in made if name in metrics}
    return null_if_not_finite(there) == null_if_not_finite(made)


def record_training(stage: Stage, trained: TrainedModel, dataset: Any, digest: str) -> None:
    """What `train` would have journalled, but for times, which nobody measured."""
    info = trained.files.info
    settings = {f"quatrain.{name}": value for name, value in info["settings"].items()}
    with Run.of(
        stage, info["run_key"], info["run_key"], digest, {**settings, CACHE_HIT: "true"}
    ) as run:
        for name, curve in history.from_csv(trained.files.contents["history.csv"]).items():
            run.metrics(
                (f"train/{name}", int(step), float(value))
                for step, value in zip(*curve, strict=True)
            )
        for name in ("weights.safetensors", "config.json"):
            run.artifact(stage.weights / name, "model")
        record_model(stage, run, trained.state, dataset)


def record_evaluation(stage: Stage, trained: TrainedModel, _dataset: Any, digest: str) -> None:
    """What `evaluate` would have journalled; under the key that it has, should it run after all."""
    for name in ("evaluate", "plots"):
        getattr(load(stage.model), name)  # loaded when `evaluate` takes its key
    scores = scores_of(stage.root, stage.params, stage.model)
    key = stage.key([digest, trained.files.digest])
    with Run.of(
        stage, trained.files.info["run_key"], key, digest, {f"{CACHE_HIT}.evaluate": "true"}
    ) as run:
        step = stage.config.train.steps
        run.metrics(
            (f"eval/{name}", step, math.nan if value is None else value)
            for name, value in scores.items()
        )
        for picture in sorted((stage.reports / "plots").glob("*.png")):
            run.artifact(picture, "plots")
        run.artifact(stage.weights / "history.csv", "data")


RECORD = {"train": record_training, "evaluate": record_evaluation}


if __name__ == "__main__":
    sys.exit(stage.main("backfill", __doc__ or "", backfill))
