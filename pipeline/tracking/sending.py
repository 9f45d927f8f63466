"""a line of a journal -> the calls that put it into its run in a store; all are safe to repeat."""

import json
import zipfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.tracking import registry
from pipeline.tracking.arrival import DIGEST_LENGTH, Call
from pipeline.tracking.journal import HISTORY, ROWS_PER_LINE, Line
from pipeline.tracking.store import UPLOAD_RATE

CHANGED_PARAMS_TAG = "quatrain.changed_params"
# Params or tags that MLflow takes in one call.
ENTRIES_PER_CALL = 100


def send_params(call: Call, run_id: str, line: Line) -> None:
    """Sends params and tags; a param that has another value already goes into a tag."""
    from mlflow.entities import Param

    existing = call("get_run", run_id).data.params
    params = []
    changed = []
    for name, value in line["params"].items():
        if name not in existing:
            params.append(Param(name, value))
        elif existing[name] != value:
            changed.append(f"{name} = {value}")
    for start in range(0, len(params), ENTRIES_PER_CALL):
        chunk = params[start : start + ENTRIES_PER_CALL]
        call("log_batch", run_id, synchronous=True, params=chunk)
    tags = {CHANGED_PARAMS_TAG: ", ".join(changed)} if changed else {}
    send_tags(call, run_id, line["tags"] | tags)


def send_tags(call: Call, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    entries = [RunTag(*item) for item in tags.items()]
    for start in range(0, len(entries), ENTRIES_PER_CALL):
        chunk = entries[start : start + ENTRIES_PER_CALL]
        call("log_batch", run_id, synchronous=True, tags=chunk)


def send_inputs(call: Call, run_id: str, line: Line) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    for entry in line["inputs"]:
        dataset = Dataset(
            name=entry["name"],
            digest=entry["digest"][:DIGEST_LENGTH],
            source_type="local",
            source=json.dumps({"uri": entry["source"]}),
        )
        context = InputTag("mlflow.data.context", entry["context"])
        call("log_inputs", run_id, [DatasetInput(dataset, [context])])


def send_metrics(call: Call, run_id: str, lines: list[Line]) -> None:
    """Sends the metrics of all lines, except those of the history."""
    from mlflow.entities import Metric

    rows = [
        Metric(name, float(value), line["time"], step)
        for line in lines
        for name, step, value in line["rows"]
        if not name.startswith(HISTORY)
    ]
    for start in range(0, len(rows), ROWS_PER_LINE):
        chunk = rows[start : start + ROWS_PER_LINE]
        call("log_batch", run_id, metrics=chunk, synchronous=True)


def send_file(call: Call, run_id: str, path: Path, folder: str) -> None:
    call("log_artifact", run_id, str(path), folder or None, size=path.stat().st_size)


def send_model(call: Call, run_id: str, path: Path, line: Line) -> None:
    """Registers the model in an archive; each of its files may take a second of its own."""
    with TemporaryDirectory() as folder:
        zipfile.ZipFile(path).extractall(folder)
        size = path.stat().st_size + UPLOAD_RATE * len([*Path(folder).rglob("*")])
        registry.register(partial(call, size=size), run_id, Path(folder), line)
