"""Stores and a server (their making takes seconds), a checkout, a folder, projects: what several
files test with.
"""

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest

from pipeline.storage import artifacts
from pipeline.tracking import store
from tests.pipeline.faulty_server import free_port
from tests.pipeline.recorded_runs import client_of, until
from tests.pipeline.retrained_checkout import Night, made_night, made_remote
from tests.pipeline.saved_folder import CONTENTS, INFO
from tests.pipeline.scored_workspace import make_workspace
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import BODIES, Project, surround


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store: made once, copied by the tests."""
    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    store.open_client(f"sqlite:///{path}")._tracking_client.store.engine.dispose()
    return path


@pytest.fixture
def uri(template: Path, tmp_path: Path) -> Iterator[str]:
    shutil.copy(template, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    yield uri
    client_of(uri)._tracking_client.store.engine.dispose()


@pytest.fixture(scope="session")
def upstream(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real tracking server."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    shutil.copy(template, folder / "mlflow.db")
    command = (
        f"{sys.executable} -m mlflow server --host 127.0.0.1 --port {port} --workers 1".split()
    )
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/files",
    ]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: answers(port))
        yield port
    finally:
        os.killpg(server.pid, 9)
        server.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `artifacts.save` makes of CONTENTS."""
    artifacts.save(tmp_path / "allo", CONTENTS, INFO)
    return tmp_path / "allo"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository whose default run has been made."""
    root = tmp_path / "checkout"
    monkeypatch.chdir(tmp_path)
    root.mkdir()
    spaces = make_workspace(root)
    for name in (
        "src/a.py",
        "src/deep/b.py",
        "pipeline/c.py",
        "docs/d.md",
        ".dvc/config",
        "dvc.lock",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name} as committed\n")
    (root / ".gitignore").write_text(".presets/\n/models/\n__pycache__/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    for space in spaces.values():
        space.score()
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def night(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """A checkout to retrain, with a pipeline that takes no time."""
    return made_night(checkout, tmp_path / "night", monkeypatch)


@pytest.fixture
def remote(night: Night, tmp_path: Path) -> Path:
    """A bare repository that it pushes to."""
    return made_remote(night, tmp_path / "remote")


@pytest.fixture(scope="session")
def all_stages_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """A model's project with all that the three stages make, made once."""

    @cache
    def created(model: str) -> Project:
        project = Project.create(tmp_path_factory.mktemp("uninterrupted") / "project", model)
        with pytest.MonkeyPatch.context() as patch:
            surround(patch, project)
            assert [project.call(verb) for verb in BODIES] == [0, 0, 0]
        return project

    return created


@pytest.fixture
def uninterrupted(
    all_stages_of: Callable[[str], Project], request: pytest.FixtureRequest
) -> Project:
    return all_stages_of(getattr(request, "param", "allo"))


@pytest.fixture
def collected(uninterrupted: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With data, and nothing trained yet."""
    project = Project.create(tmp_path / "project", uninterrupted.model)
    project.root.joinpath("data").mkdir()
    artifacts.save(project.data, *artifacts.load(uninterrupted.data)[:2])
    surround(monkeypatch, project)
    return project


@pytest.fixture
def evaluated(uninterrupted: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With all that the three stages made."""
    project = uninterrupted.copied(tmp_path / "copy")
    surround(monkeypatch, project)
    return project


def answers(port: int) -> bool:
    with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False
