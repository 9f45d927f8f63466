"""What the campaign interrupts: each stage of each model, in environments of ours and of a user."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from matplotlib.figure import Figure

from pipeline.runtime.command import run_guarded
from pipeline.runtime.processes import folder_lock
from pipeline.runtime.stage import Stage, run_on_device
from pipeline.storage.params_file import read_params
from pipeline.tracking import outbox
from pipeline.tracking import run as tracking
from pipeline.tracking.outbox import Outbox
from quatrain.registry import load
from quatrain.validation import overlaid
from tests.conftest import FORMS, SMALL
from tests.pipeline.small_project import BODIES, NOBODY, Pretended, Project

VERBS = tuple(BODIES)
TRIED = [form for form in FORMS if form != "active_dynamics-seq_vae"]
"""Forms whose stages are interrupted; seq_vae is saved as active_dynamics itself is."""


class Work(NamedTuple):
    """Holds what is interrupted.

    start: the folder that it begins in. run: does it in the current folder, and returns its exit
    code. results: names and contents, equal however often it was interrupted. writes: folders whose
    files are old or new at any moment. full: its exit code where the disk is full.
    """

    name: str
    start: Path
    run: Callable[[], int]
    results: Callable[[Path], dict[str, Any]]
    writes: tuple[str, ...]
    full: int = 5


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


class Silent:
    """Ships nothing: what a shipper writes is the campaign's work `sync`."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def finish(self, *_: float) -> bool:
        return True


def watched_commit(database: Any) -> None:
    """Commits after an operation of Python, which a faulty disk sees: SQLite's own it does not."""
    (_, _, file), *_ = database.execute("PRAGMA database_list").fetchall()
    with Path(f"{file}.commits").open("ab"):
        database.execute("COMMIT")


@contextmanager
def surroundings(model: str | None = None) -> Iterator[None]:
    """No tracking server, and one quick picture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", NOBODY)
        patch.setattr(tracking, "Shipper", Silent)
        patch.setattr(outbox, "commit", watched_commit)
        if model is not None:
            picture = {"empty": Figure(figsize=(1, 1))}
            patch.setattr(load(model).plots, "plots", lambda *_: picture)
        yield


# Stages.


def stages_of(form: str, root: Path) -> Iterator[Work]:
    """Yields collect, train and evaluate, each beginning with what the one before it has made, and
    with older results of its own.
    """
    model, changes = FORMS[form]
    project = Project.create(root / "project", model)
    section = overlaid({model: SMALL[model]}, {model: changes})
    project.choose({"device": "cpu", "threads": 1} | section)
    older = project.copied(root / "older")
    older.choose({"seed": 1})
    for verb in VERBS:
        prepare(older, verb)
        start = project.copied(root / verb).root
        for out in outs_of(verb, model):
            shutil.copytree(older.root / out, start / out)
        work = Work(
            f"{form} {verb}",
            start,
            partial(run_stage, verb, model),
            partial(stage_results, verb, model),
            outs_of(verb, model),
        )
        yield work
        prepare(project, verb)


def prepare(project: Project, verb: str) -> None:
    said = StringIO()
    with inside(project.root), redirect_stdout(said), redirect_stderr(said):
        assert run_stage(verb, project.model) == 0, said.getvalue()


def outs_of(verb: str, model: str) -> tuple[str, ...]:
    folder = {"collect": "data", "train": "models", "evaluate": "reports"}[verb]
    return (f"{folder}/{model}",)


def run_stage(verb: str, model: str) -> int:
    """Does what `python -m pipeline.VERB MODEL` does, in this process."""

    def work() -> None:
        stage = Stage(verb, model, Path.cwd(), read_params(Path.cwd()))
        with surroundings(model), folder_lock(stage.state / "locks" / stage.name, 0):
            run_on_device(stage, BODIES[verb], Pretended())

    return run_guarded(f"{verb}@{model}", work)


def stage_results(verb: str, model: str, root: Path) -> dict[str, Any]:
    return files_in(root, *outs_of(verb, model)) | recorded_in(root)


def files_in(root: Path, *folders: str) -> dict[str, Any]:
    """Returns path -> bytes of the files below folders."""
    below = [path for folder in folders for path in sorted((root / folder).rglob("*"))]
    paths = [*below, *(root / folder for folder in folders)]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def recorded_in(root: Path) -> dict[str, Any]:
    """Returns how each outbox ends and what it has; without times."""
    content: dict[str, Any] = {}
    for path in sorted(root.glob(".state/outbox/*.sqlite")):
        each = Outbox(path)
        content[f"{each.name} ends"] = [end.body for end in each.records("end")]
        content[f"{each.name} metrics"] = sorted(
            (point.name, point.step, repr(point.value))
            for point in each.points()
            if not point.name.startswith(("time/", "usage/", "system/"))
        )
        content[f"{each.name} files"] = sorted(
            (file.name, file.data) for file in each.records("artifact")
        )
    return content
