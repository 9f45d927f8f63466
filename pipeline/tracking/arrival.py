"""lines of a journal, a store -> what of them the store does not hold.

An acknowledgement proves little: a proxy may answer in the server's place, and a store may be
restored from a backup that is older than its answers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Self

from pipeline.tracking.journal import HISTORY, Line
from pipeline.tracking.store import Unreachable

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]
# Characters of a dataset's digest that MLflow takes.
DIGEST_LENGTH = 36
# Characters of a tag that are compared: MLflow cuts a long one.
COMPARED = 200
# Statuses of a run that has not ended.
OPEN = ("RUNNING", "SCHEDULED")


@dataclass
class Content:
    """Holds what a store must have of some lines of a journal."""

    params: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    datasets: set[tuple[str, str]] = field(default_factory=set)
    metrics: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> the last step and its time, in milliseconds since 1970."""
    files: dict[str, set[str]] = field(default_factory=dict)
    """Folder of the run -> names of its files."""
    models: set[str] = field(default_factory=set)
    has_ended: bool = False

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Self:
        content = cls()
        for line in lines:
            content._add(line)
            content.has_ended = line["kind"] == "end"
        return content

    def _add(self, line: Line) -> None:
        match line["kind"]:
            case "begin":
                self.params.update(line["params"])
                self.tags.update(line["tags"])
                self.datasets.update(
                    (entry["name"], entry["digest"][:DIGEST_LENGTH]) for entry in line["inputs"]
                )
            case "tags":
                self.tags.update(line["tags"])
            case "metrics":
                for name, step, _ in line["rows"]:
                    if not name.startswith(HISTORY):
                        last = (step, line["time"])
                        self.metrics[name] = max(last, self.metrics.get(name, last))
            case "artifact":
                file = PurePosixPath(line["file"]).name
                self.files.setdefault(line["path"], set()).add(file)
            case "model":
                self.models.add(line["name"])


def check_arrived(call: Call, run_id: str, lines: Iterable[Line]) -> None:
    """Checks that a store holds lines that were just sent, and the values of their tags.

    Raises:
        Unreachable: it does not; the message says what it lacks.
        Exception: any error of mlflow and its libraries.
    """
    content = Content.of(lines)
    lacking = lacks(call, run_id, content)
    if lacking is None and content.tags:
        stored = call("get_run", run_id).data.tags
        for name, text in content.tags.items():
            if stored[name][:COMPARED] != text[:COMPARED]:
                lacking = f"tag {name}"
    if lacking is not None:
        raise Unreachable(f"the store acknowledged {lacking} and does not have it")


def lacks(call: Call, run_id: str, content: Content) -> str | None:
    """Returns something that a run does not have; None if it has the last of everything.

    It asks for the run, and once for each folder of files and each model.
    """
    run = call("get_run", run_id)
    if run.info.run_id != run_id:
        return "the run"
    return (
        _lacks_data(run, content)
        or _lacks_file(call, run_id, content)
        or _lacks_version(call, run_id, content)
        or ("its end" if content.has_ended and run.info.status in OPEN else None)
    )


def _lacks_data(run: Any, content: Content) -> str | None:
    stored = {entry.key: (entry.step, entry.timestamp) for entry in run.data.to_proto().metrics}
    inputs = run.inputs.dataset_inputs if run.inputs else ()
    datasets = {(entry.dataset.name, entry.dataset.digest) for entry in inputs}
    for name, last in content.metrics.items():
        if name not in stored or stored[name] < last:
            return f"metric {name}"
    for kind, names in (
        ("param", content.params - run.data.params.keys()),
        ("tag", content.tags.keys() - run.data.tags.keys()),
        ("dataset", {name for name, _ in content.datasets - datasets}),
    ):
        if names:
            return f"{kind} {min(names)}"
    return None


def _lacks_file(call: Call, run_id: str, content: Content) -> str | None:
    for folder, names in content.files.items():
        entries = call("list_artifacts", run_id, folder or None)
        lost = names - {PurePosixPath(entry.path).name for entry in entries}
        if lost:
            return f"file {min(lost)}"
    return None


def _lacks_version(call: Call, run_id: str, content: Content) -> str | None:
    for name in content.models:
        versions = call("search_model_versions", f"name = '{name}' and run_id = '{run_id}'")
        if not any(version.run_id == run_id for version in versions):
            return f"a version of model {name}"
    return None
