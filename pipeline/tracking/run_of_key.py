"""a run key -> the ID of its run in a store, which is created by whoever needs it first."""

from pathlib import Path
from typing import Any

from pipeline.tracking import experiment, registry, run_times
from pipeline.tracking.arrival import Call
from pipeline.tracking.journal import Header
from pipeline.tracking.run_times import PARENT_TAG
from pipeline.tracking.store import Unreachable

# Error codes of a run that a store does not have; it gives the second for an ID that is none.
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def is_active(call: Call, run_id: str, run_key: str) -> bool:
    """Returns whether a store has this run, not deleted, and it is that of the key."""
    try:
        run = call("get_run", run_id)
    except Exception as error:
        if getattr(error, "error_code", None) in ABSENT:
            return False
        raise
    return bool(run.info.lifecycle_stage == "active") and _is_of(run, run_key)


def find_or_create(call: Call, header: Header, start: int, artifacts: Path | None) -> str:
    """Returns the run of a journal, below that of its pipeline or sweep.

    start: when a new run began, in milliseconds since 1970. artifacts: the folder of the files of a
    new experiment, None for a server's.

    Raises:
        Unreachable: the store deleted the experiment, or lacks what it says it created.
        Exception: any error of mlflow and its libraries.
    """
    tags = {}
    if header.parent is not None:
        tags = {PARENT_TAG: find_or_create_parent(call, header, start, artifacts)}
    return _oldest_or_new(call, header, start, artifacts, tags)


def find_or_create_parent(call: Call, header: Header, start: int, artifacts: Path | None) -> str:
    parent = header.parent
    assert parent is not None
    of_parent = header._replace(run_key=parent.run_key, run_name=parent.run_name)
    tags = run_times.tags_of_parent(header) | {parent.tag: "true"}
    return _oldest_or_new(call, of_parent, start, artifacts, tags)


def _oldest_or_new(
    call: Call, header: Header, start: int, artifacts: Path | None, tags: dict[str, str]
) -> str:
    """Returns the oldest active run of this key, or a new one.

    MLflow may create duplicate runs when a reply is lost: deletes empty duplicates.
    """
    experiment_id = experiment.find_or_create(call, header.experiment, artifacts)
    runs = _find(call, experiment_id, header.run_key)
    if not runs:
        tags = {registry.RUN_KEY_TAG: header.run_key, **tags}
        call("create_run", experiment_id, start, tags, header.run_name)
        runs = _find(call, experiment_id, header.run_key)
        if not runs:
            raise Unreachable("the store acknowledged a new run and does not have it")
    for duplicate in runs[1:]:
        if not duplicate.data.metrics and not duplicate.data.params:
            call("delete_run", duplicate.info.run_id)
    return str(runs[0].info.run_id)


def _find(call: Call, experiment_id: str, run_key: str) -> list[Any]:
    query = f"tags.`{registry.RUN_KEY_TAG}` = '{run_key}'"
    runs = call("search_runs", [experiment_id], query)
    return sorted(
        (run for run in runs if _is_of(run, run_key)),
        key=lambda run: (run.info.start_time, run.info.run_id),
    )


def _is_of(run: Any, run_key: str) -> bool:
    has_id = isinstance(run.info.run_id, str) and run.info.run_id != ""
    return has_id and run.data.tags.get(registry.RUN_KEY_TAG) == run_key
