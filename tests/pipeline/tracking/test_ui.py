"""Tests that `make ui` says where the runs are when they can be seen, and leaves nothing behind."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from pipeline.cli import main
from pipeline.tracking import ui
from pipeline.tracking.ui import runs_page
from tests.conftest import ROOT
from tests.pipeline.faulty_server import free_port
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.recorded_runs import deliver, recorded, until
from tests.pipeline.small_project import NOBODY

VIEW = "?workflowType=machine_learning"
COLUMNS = "&viewStateShareKey=quatrain"
PAGE = rf"MLflow UI: (http://127\.0\.0\.1:(\d+)/#/experiments/1/runs{re.escape(VIEW + COLUMNS)}) "


@pytest.fixture
def folder(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    """A folder whose store has a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    deliver(recorded(tmp_path / "train@allo.sqlite", "k1"), uri)
    return tmp_path


@pytest.fixture
def started(monkeypatch: Patch) -> list[tuple[list[str], dict[str, str]]]:
    """Arguments and environments of what replaced this process, or would have."""
    calls: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(ui.os, "execve", lambda _, *call: calls.append(call))
    return calls


@pytest.mark.usefixtures("folder")
def test_it_prints_the_page_and_becomes_a_server_of_this_machine_alone(
    uri: str, started: list[tuple[list[str], dict[str, str]]], capsys: Capture
):
    port = str(free_port())
    assert main(["ui", "--port", port]) == 0
    match = re.match(PAGE, capsys.readouterr().out)
    assert match
    assert match[2] == port
    ((arguments, environment),) = started
    options = dict(zip(arguments[4::2], arguments[5::2], strict=True))
    assert (options["--host"], options["--port"]) == ("127.0.0.1", port)
    assert options["--allowed-hosts"] == f"127.0.0.1:{port},localhost:{port}"
    assert environment.items() >= ui.SETTINGS.items()
    assert options["--backend-store-uri"] == uri


@pytest.mark.full
@pytest.mark.usefixtures("folder")
def test_the_page_can_be_read_and_a_signal_ends_all_processes():
    port = free_port()
    command = [sys.executable, "-m", "pipeline", "ui", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        match = re.match(PAGE, process.stdout.readline())
        assert match
        until(lambda: b"<title>MLflow</title>" in read(match[1].partition("#")[0]))
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    until(lambda: not any(child.is_running() for child in children))


def read(url: str) -> bytes:
    with suppress(OSError), urllib.request.urlopen(url) as answer:
        return answer.read()
    return b""


def test_a_port_in_use_is_one_line(folder: Path, failure: Failure):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        said = failure(main, "ui", "--port", str(port), code=2)
    assert said.startswith(f"ui: port {port} cannot be used (Address already in use); end what ")
    assert said.endswith("or choose another: `make ui PORT=5001`")
    assert not (folder / ".state").exists()


def test_the_page_has_the_id_that_the_store_gave_or_none(folder: Path, monkeypatch: Patch):
    assert runs_page(folder) == f"http://127.0.0.1:5000/#/experiments/1/runs{VIEW}{COLUMNS}"
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.execute("DELETE FROM experiment_tags")
        database.commit()
    assert runs_page(folder) == f"http://127.0.0.1:5000/#/experiments/1/runs{VIEW}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/none.db")
    assert runs_page(folder, 5001) == f"http://127.0.0.1:5001/#/experiments{VIEW}"
    assert not (folder / "none.db").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    assert runs_page(folder) == f"{NOBODY}/#/experiments{VIEW}"


def test_a_database_that_does_not_answer_is_one_line(
    folder: Path, failure: Failure, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me@127.0.0.1:1/db")
    said = failure(main, "ui", "--port", str(free_port()), code=6)
    assert said.startswith(
        "ui: the store postgresql://***@127.0.0.1:1/db cannot be opened: no server "
    )
    assert not (folder / ".state").exists()
