"""journals of a run -> its start and end in MLflow: as long as the work was, pauses left out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pipeline.tracking.journal import Header, Line
from pipeline.tracking.store import Unreachable

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]

SECONDS_TAG = "quatrain.seconds."
PARENT_TAG = "mlflow.parentRunId"
PIPELINE_TAG = "quatrain.pipeline"


def worked_seconds(lines: Iterable[Line]) -> float:
    """Returns how long a stage worked: an attempt that recorded nothing counts as none, and one
    that was killed until its last line.
    """
    seconds = 0.0
    start = last = 0
    has_work = False
    for line in lines:
        if line["kind"] in ("begin", "resume"):
            seconds += (last - start) / 1000 if has_work else 0.0
            start = last = line["time"]
            has_work = False
        else:
            last = line.get("time", last)
            has_work |= line["kind"] not in ("end", "tags", "card")
    return seconds + ((last - start) / 1000 if has_work else 0.0)


def end_run(call: Call, run_id: str, part: str, seconds: float, status: str) -> int:
    """Ends a run after the work of all its parts, of which `part` took `seconds`; returns when.

    Safe to repeat: each part is noted in a tag of its own.
    """
    run = call("get_run", run_id)
    tags = run.data.tags | {f"{SECONDS_TAG}{part}": f"{seconds:.3f}"}
    call("set_tag", run_id, f"{SECONDS_TAG}{part}", f"{seconds:.3f}")
    start = run.info.start_time
    if PIPELINE_TAG in tags:
        query = f"tags.`{PARENT_TAG}` = '{run_id}'"
        children = call("search_runs", [run.info.experiment_id], query)
        start = max([child.info.end_time or 0 for child in children], default=0) or start
    end = start + round(1000 * worked(tags))
    call("set_terminated", run_id, status, end)
    return end


def end_parent(call: Call, parent_id: str, status: str, end: int) -> None:
    """Ends the run of a pipeline, which a killed one cannot do itself, not before its children."""
    parent = call("get_run", parent_id)
    call("set_terminated", parent_id, status, max(end, parent.info.end_time or 0))
    if call("get_run", parent_id).info.end_time is None:
        raise Unreachable("the store lacks the end of the pipeline's run that it acknowledged")


def worked(tags: Mapping[str, str]) -> float:
    """Returns the seconds of all parts of a run."""
    return sum(float(text) for name, text in tags.items() if name.startswith(SECONDS_TAG))


def part_of(journal: str) -> str:
    """Returns the name of a run's part: `train` for the folder `train@allo-0123`."""
    return journal.partition("-")[0].partition("@")[0]


def tags_of_parent(header: Header) -> dict[str, str]:
    """Returns the tags of a child that hold for its pipeline or sweep as well."""
    shared = ("quatrain.preset", "quatrain.seed", "quatrain.params", "mlflow.user")
    is_shared = lambda name: name in shared or "git." in name  # noqa: E731
    return {name: value for name, value in header.tags.items() if is_shared(name)}
