"""Tests that `make ui` says where the runs are when they can be seen, and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from pipeline.commands import ui
from pipeline.tracking.runs_page import runs_page
from tests.conftest import ROOT
from tests.pipeline.faulty_server import free_port
from tests.pipeline.fixture_types import Failure, Patch
from tests.pipeline.recorded_runs import deliver, recorded, until
from tests.pipeline.small_project import NOBODY

VIEW = "?workflowType=machine_learning"
PAGE = rf"MLflow UI: (http://127\.0\.0\.1:(\d+)/#/experiments/1/runs{re.escape(VIEW)}) "


@pytest.fixture
def folder(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    """A folder whose store has a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    deliver(recorded(tmp_path / "journal" / "train@allo", "k1"), uri)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_the_page_once_it_answers_and_ends_all_processes_at_a_signal(
    folder: Path, number: signal.Signals
):
    port = free_port()
    command = [sys.executable, "-m", "pipeline.commands.ui", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(PAGE, line)
        assert match, line + (folder / ui.LOG).read_text()
        assert int(match[2]) == port
        with urllib.request.urlopen(match[1].partition("#")[0]) as answer:
            assert b"<title>MLflow</title>" in answer.read()
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(number)
        assert process.wait(30) == 0
    until(lambda: not any(child.is_running() for child in children))


def test_a_port_in_use_is_one_line(folder: Path, failure: Failure):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        said = failure(ui.main, "--port", str(port), code=2)
    assert said.startswith(f"ui: port {port} cannot be used (Address already in use); end what ")
    assert said.endswith(f"choose another port: `make ui PORT={port % 65535 + 1}`")
    said = failure(ui.main, "--port", "70000", code=2)
    assert said == "ui: port 70000: use a number from 1 to 65535, such as `make ui PORT=5001`"
    assert not (folder / ".state").exists()


def test_the_page_has_the_id_that_the_store_gave_or_none(folder: Path, monkeypatch: Patch):
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
    said = failure(ui.main, "--port", str(free_port()), code=6)
    assert said.startswith("ui: the store postgresql://127.0.0.1:1/db cannot be opened: no server ")
    assert not (folder / ".state").exists()


def test_a_store_where_no_file_can_be_made_is_one_line(
    folder: Path, failure: Failure, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/mlflow.db")
    said = failure(ui.main, "--port", str(free_port()), code=6)
    assert "/proc/mlflow.db cannot be written (No such file or directory); name a file " in said
    assert said.endswith(" elsewhere in MLFLOW_TRACKING_URI")
    assert not (folder / ".state").exists()
