"""trained models -> versions of registered models in MLflow."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RUN_KEY_TAG = "quatrain.run_key"
TIME_TAG = "quatrain.trained_at"
# Title of the section of a model's card that its evaluation writes.
SCORES = "## Scores"
# Alias of the version that was trained last.
CANDIDATE = "candidate"

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]


def registered_name(model: str, preset: str) -> str:
    """Returns the name of the registered model; each preset has a model of its own."""
    return f"quatrain-{model}" if preset == "default" else f"quatrain-{model}-{preset}"


def register(call: Call, run_id: str, folder: Path, line: Mapping[str, Any]) -> None:
    """Uploads a model as a version of `line["name"]`; the version that was trained last is the
    candidate, and its card that of the registered model.

    Safe to repeat after a lost reply: the logged model and the version are found by their run.
    """
    name = line["name"]
    run = call("get_run", run_id)
    logged = _logged_model(call, run, name)
    call("log_model_artifacts", logged.model_id, str(folder))
    call("finalize_logged_model", logged.model_id, "READY")
    if not call("search_registered_models", f"name = '{name}'"):
        call("create_registered_model", name)
    if _version_of_run(call, name, run_id) is None:
        # A server refuses a source that belongs to neither a run nor a model.
        call(
            "create_model_version",
            name,
            logged.artifact_location,
            tags={RUN_KEY_TAG: run.data.tags[RUN_KEY_TAG], TIME_TAG: str(line["time"])},
            description=line.get("card") or None,
            await_creation_for=0,
            run_id=run_id,
            model_id=logged.model_id,
        )
    versions = call("search_model_versions", f"name = '{name}'")
    latest = max(versions, key=_trained_at)
    call("set_registered_model_alias", name, CANDIDATE, latest.version)
    call("update_registered_model", name, latest.description)


def _logged_model(call: Call, run: Any, name: str) -> Any:
    from mlflow.entities import LoggedModelOutput

    experiment, run_id = run.info.experiment_id, run.info.run_id
    models = call("search_logged_models", [experiment], f"source_run_id = '{run_id}'")
    if models:
        return models[0]
    logged = call("create_logged_model", experiment, name, run_id, model_type="pyfunc")
    call("log_outputs", run_id, [LoggedModelOutput(logged.model_id, 0)])
    return logged


def _trained_at(version: Any) -> tuple[int, int]:
    return int(version.tags.get(TIME_TAG, 0)), int(version.version)


def _version_of_run(call: Call, name: str, run_id: str) -> Any:
    versions = call("search_model_versions", f"name = '{name}' and run_id = '{run_id}'")
    return versions[0] if versions else None


def describe(call: Call, run_id: str, name: str, scores: str) -> None:
    """Puts the scores of a run into the card of its version, and into that of the registered model
    if the version is its candidate.

    A run without a version, such as one that another store had, is left alone.
    """
    version = _version_of_run(call, name, run_id)
    if version is None:
        return
    before, _, after = (version.description or "").partition(SCORES)
    _, heading, rest = after.partition("\n\n## ")
    card = f"{before}{scores}{heading}{rest}"
    call("update_model_version", name, version.version, card)
    if version_with_alias(call, name, CANDIDATE) == str(version.version):
        call("update_registered_model", name, card)


def version_with_alias(call: Call, name: str, alias: str) -> str | None:
    """Returns the number of the version that has an alias; None if none has it."""
    models = call("search_registered_models", f"name = '{name}'")
    version = models[0].aliases.get(alias) if models else None
    return None if version is None else str(version)
