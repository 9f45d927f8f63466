"""a run's model -> a version of a registered one: found again by its run, however often a call is repeated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

RUN_KEY_TAG = "quatrain.run_key"
TIME_TAG = "quatrain.trained_at"
CANDIDATE, CHAMPION = "candidate", "champion"

Call = Callable[..., Any]
"""A method of an MLflow client by name, with its arguments."""


def register(call: Call, run_id: str, folder: Path, line: Mapping[str, Any]) -> None:
    """Upload what serves a run's model, make it a version of `line["name"]`, and the candidate if none is younger.

    A call whose answer was lost is made again, without harm: the logged model and the version are found by their run.
    """
    run = call("get_run", run_id)
    logged = _logged_model(call, run, line["name"])
    call("log_model_artifacts", logged.model_id, str(folder))
    call("finalize_logged_model", logged.model_id, "READY")
    versions = call("search_model_versions", f"name = '{line['name']}' and run_id = '{run_id}'")
    version = versions[0] if versions else _new_version(call, run, logged, line)
    candidate = holder(partial(call, "get_model_version_by_alias"), line["name"], CANDIDATE)
    if candidate is None or int(candidate.tags.get(TIME_TAG, 0)) <= line["time"]:
        call("set_registered_model_alias", line["name"], CANDIDATE, version.version)


def _logged_model(call: Call, run: Any, name: str) -> Any:
    from mlflow.entities import LoggedModelOutput

    experiment, run_id = run.info.experiment_id, run.info.run_id
    found = call("search_logged_models", [experiment], f"source_run_id = '{run_id}'")
    if found:
        return found[0]
    logged = call("create_logged_model", experiment, name, run_id, model_type="pyfunc")
    call("log_outputs", run_id, [LoggedModelOutput(logged.model_id, 0)])
    return logged


def _new_version(call: Call, run: Any, logged: Any, line: Mapping[str, Any]) -> Any:
    with unless("RESOURCE_ALREADY_EXISTS"):
        call("create_registered_model", line["name"])
    tags = {RUN_KEY_TAG: run.data.tags[RUN_KEY_TAG], TIME_TAG: str(line["time"])}
    of = {
        "run_id": run.info.run_id,
        "model_id": logged.model_id,
    }  # a server refuses a source that is of neither
    return call(
        "create_model_version",
        line["name"],
        logged.artifact_location,
        tags=tags,
        await_creation_for=0,
        **of,
    )


def holder(ask: Callable[[str, str], Any], name: str, alias: str) -> Any:
    """The version that bears an alias, by the client's method; None if there is none."""
    found = None
    with unless("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
        found = ask(name, alias)
    return found


@contextmanager
def unless(*codes: str) -> Iterator[None]:
    """Go on where MLflow answers with one of these codes."""
    try:
        yield
    except Exception as error:
        if getattr(error, "error_code", None) not in codes:
            raise
