"""Stores and a server that the tests of tracking share, for their making takes seconds."""

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pipeline import store
from tests.pipeline.faulty_server import free_port
from tests.pipeline.recorded_runs import client_of, until


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
    command = f"{sys.executable} -m mlflow server --host 127.0.0.1 --port {port} --workers 1".split()
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/files"]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: answers(port))
        yield port
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def answers(port: int) -> bool:
    with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False
