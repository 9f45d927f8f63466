"""trained models -> versions of registered models in MLflow."""

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import safetensors.numpy

from pipeline.tracking.records import EXPERIMENT, Record
from pipeline.tracking.store import quieten
from quatrain.storage import folders

RUN_KEY_TAG = "quatrain.run_key"
TIME_TAG = "quatrain.trained_at"
# Alias of the version that was trained last.
CANDIDATE = "candidate"

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]


def registered_name(model: str, preset: str) -> str:
    """Returns the name of the registered model; each preset has a model of its own."""
    return "-".join([EXPERIMENT, model, *([] if preset == "default" else [preset])])


def built(parts: Path) -> Path:
    """Returns a folder with a model in MLflow's format, as a model from code with pinned
    requirements, made from what `export.pack` wrote.
    """
    if (parts / "MLmodel").exists():  # recorded before stages left the building to the delivery
        return parts
    quieten()
    logging.getLogger("mlflow.pyfunc").setLevel(logging.ERROR)
    request, answer = (
        safetensors.numpy.load_file(parts / f"{name}.safetensors") for name in ("request", "answer")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, about type hints and libraries
        # A part that another thread is importing is incomplete: import the whole first.
        import mlflow

        signature = mlflow.models.infer_signature(request, answer)
        # Marked as one whose model checks its input: MLflow would drop inputs that it does not
        # know, and convert strings and booleans to numbers.
        signature._is_signature_from_type_hint = True
        mlflow.pyfunc.save_model(
            str(parts / "model"),
            python_model=str(parts / "pyfunc_model.py"),
            artifacts={
                "config": str(parts / "config.json"),
                "weights": str(parts / "weights.safetensors"),
            },
            code_paths=[str(parts / "quatrain")],
            signature=signature,
            input_example=request,
            **json.loads((parts / "settings.json").read_text()),
        )
    return parts / "model"


def register(call: Call, run_id: str, folder: Path, model: Record) -> None:
    """Uploads a model as a version of its registered model.

    Safe to repeat after a lost reply: the logged model and the version are found by their run.
    """
    name = model.name
    run = call("get_run", run_id)
    logged = _logged_model(call, run, name)
    call("log_model_artifacts", logged.model_id, str(folder))
    call("finalize_logged_model", logged.model_id, "READY")
    if not call("search_registered_models", f"name = '{name}'"):
        call("create_registered_model", name)
    if not versions_of(call, name, f"run_id = '{run_id}'"):
        # A server refuses a source that belongs to neither a run nor a model.
        call(
            "create_model_version",
            name,
            logged.artifact_location,
            tags={RUN_KEY_TAG: run.data.tags[RUN_KEY_TAG], TIME_TAG: str(model.time)},
            description=model.body or None,
            await_creation_for=0,
            run_id=run_id,
            model_id=logged.model_id,
        )
    _set_candidate(call, name)


def describe(call: Call, run_id: str, name: str, card: str) -> None:
    """Sets the card of the version of a run, if this store has that version."""
    for version in versions_of(call, name, f"run_id = '{run_id}'"):
        call("update_model_version", name, version.version, card)
        _set_candidate(call, name)


def tag_version(call: Call, run_id: str, name: str, tags: Mapping[str, str]) -> None:
    """Sets tags of the version of a run, if this store has that version."""
    for version in versions_of(call, name, f"run_id = '{run_id}'"):
        for tag, text in tags.items():
            call("set_model_version_tag", name, version.version, tag, text)


def evaluation_of(call: Call, run_id: str) -> dict[str, Any]:
    """Returns what the evaluation of a run recorded, `scores` and `provenance`, if it did; nothing
    of a run that is deleted for good.
    """
    from mlflow.exceptions import RESOURCE_DOES_NOT_EXIST, ErrorCode, MlflowException

    try:
        files = [file.path for file in call("list_artifacts", run_id, "evaluation")]
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
        return {}
    with TemporaryDirectory() as folder:
        paths = [Path(call("download_artifacts", run_id, file, folder)) for file in files]
        return {path.stem: folders.read_json(path) for path in paths}


def _set_candidate(call: Call, name: str) -> None:
    """Makes the version that was trained last the candidate, and its card that of the model."""
    versions = versions_of(call, name)
    latest = max(versions, key=lambda each: int(each.tags.get(TIME_TAG, 0)))
    call("set_registered_model_alias", name, CANDIDATE, latest.version)
    call("update_registered_model", name, latest.description)


def versions_of(call: Call, name: str, condition: str = "") -> list[Any]:
    """Returns the versions of a registered model that meet a condition, the newest first."""
    query = " and ".join(filter(None, [f"name = '{name}'", condition]))
    versions = call("search_model_versions", query)
    return sorted(versions, key=lambda version: int(version.version), reverse=True)


def version_with_alias(call: Call, name: str, alias: str) -> str | None:
    """Returns the number of the version that has an alias; None if none has it."""
    models = call("search_registered_models", f"name = '{name}'")
    version = models[0].aliases.get(alias) if models else None
    return None if version is None else str(version)


def _logged_model(call: Call, run: Any, name: str) -> Any:
    from mlflow.entities import LoggedModelOutput

    experiment, run_id = run.info.experiment_id, run.info.run_id
    models = call("search_logged_models", [experiment], f"source_run_id = '{run_id}'")
    if models:
        return models[0]
    logged = call("create_logged_model", experiment, name, run_id, model_type="pyfunc")
    call("log_outputs", run_id, [LoggedModelOutput(logged.model_id, 0)])
    return logged
