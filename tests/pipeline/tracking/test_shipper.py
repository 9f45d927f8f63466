"""Tests that everything is delivered once and nothing waits, whatever a server does."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal
from pipeline.tracking.shipper import Shipper
from pipeline.tracking.store import resolve_uri
from tests.conftest import ROOT
from tests.pipeline.faulty_server import faulty, free_port
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import (
    arrived,
    client_of,
    deliver,
    expected,
    recorded,
    runs_of,
    until,
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "calls"), [("reset", 2), ("reset", 9), ("500", 9), ("503", 4), ("hang", 9)]
)
def test_everything_is_delivered_despite_a_fault(
    upstream: int, tmp_path: Path, monkeypatch: Patch, fault: str, calls: int
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    key = f"{fault}-{calls}"
    journal = recorded(tmp_path / "journal" / "train@allo", key)
    with faulty(upstream) as server:
        server.fault, server.calls = fault, calls
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            deliver(journal, server.uri)
        server.fault = ""
        deliver(journal, server.uri)
        assert arrived(client_of(server.uri), key) == expected(journal)


@pytest.mark.full
def test_a_reply_lost_after_the_commit_repeats_nothing(upstream: int, tmp_path: Path):
    journal = recorded(tmp_path / "journal" / "train@allo", "lost")
    with faulty(upstream) as server:
        server.fault = "lost reply"
        deliver(journal, server.uri, attempts=50)
        server.fault = ""
        assert arrived(client_of(server.uri), "lost") == expected(journal)
        assert [run.info.status for run in runs_of(client_of(server.uri), "lost")] == ["FINISHED"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "calls", "retry_seconds"), [("reset", 8, 0.1), ("500", 0, 1e6)], ids=["run", "end"]
)
def test_a_server_that_is_back_during_the_run_or_at_its_end_gets_everything(
    upstream: int, tmp_path: Path, fault: str, calls: int, retry_seconds: float
):
    journal = recorded(tmp_path / "journal" / "train@allo", f"back-{fault}")
    with faulty(upstream) as server:
        server.fault, server.calls = fault, calls
        shipper = Shipper(journal, server.uri, retry_seconds=retry_seconds)
        until(lambda: server.calls < (-2 if calls else 0))
        server.fault = ""
        assert shipper.finish()
        assert arrived(client_of(server.uri), f"back-{fault}") == expected(journal)


def test_an_attempt_that_fails_while_the_stage_ends_is_repeated(
    journal: Journal, uri: str, monkeypatch: Patch
):
    begun, ending, step = threading.Event(), threading.Event(), Delivery.step

    def fail_at_the_end(_: Delivery) -> bool:
        begun.set()
        ending.wait()
        monkeypatch.setattr(Delivery, "step", step)
        raise ConnectionResetError

    monkeypatch.setattr(Delivery, "step", fail_at_the_end)
    shipper = Shipper(journal, uri)
    begun.wait()
    threading.Timer(0.5, ending.set).start()
    assert shipper.finish()
    assert arrived(client_of(uri), "k1") == expected(journal)


def test_a_failing_server_is_retried_after_a_pause(journal: Journal):
    with faulty() as server:
        server.fault = "500"
        shipper = Shipper(journal, server.uri, retry_seconds=1e6)
        until(lambda: server.calls < 0)
        for step in range(1400, 1500):
            journal.metrics([("train/loss", step, 0.5)])
            time.sleep(0.01)
        assert server.calls == -2  # one call, which mlflow itself made twice
        shipper.finish()


@pytest.mark.parametrize(
    ("kind", "why"),
    [("closed", "no server answers"), ("silent", "no answer"), ("damaged", "not a database")],
)
def test_a_store_that_cannot_take_it_keeps_no_stage_waiting_and_costs_one_warning(
    journal: Journal, tmp_path: Path, capfd: Capture, kind: str, why: str
):
    (tmp_path / "mlflow.db").write_bytes(b"something else, as long as a header" * 20)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = free_port() if kind == "closed" else silent.getsockname()[1]
        shown = f"http://127.0.0.1:{port}"
        uri = shown.replace("//", "//me:hunter2@")
        if kind == "damaged":
            uri = shown = f"sqlite:///{tmp_path}/mlflow.db"
        assert not Shipper(journal, uri, wait_seconds=1e6).finish()
    (line,) = capfd.readouterr().err.splitlines()
    start, _, rest = line.partition(" (")
    assert start == (
        f"warning: tracking: 1,480 metrics and 2 files of train@allo are not yet at {shown}"
    )
    assert why in rest
    assert rest.endswith("); they are kept: `make sync` sends them")


@pytest.mark.full
def test_a_process_ends_while_a_call_hangs(journal: Journal):
    journal.close()
    code = """
import sys
from pathlib import Path
from pipeline.tracking.journal import Journal
from pipeline.tracking.shipper import Shipper
shipper = Shipper(Journal(Path(sys.argv[1])), sys.argv[2], wait_seconds=1e6)
sys.exit(7 if shipper.finish() else 0)
"""
    with faulty() as server:
        server.fault = "hang"
        command = [sys.executable, "-c", code, str(journal.folder), server.uri]
        environment = os.environ | {"MLFLOW_HTTP_REQUEST_TIMEOUT": "100000", "PYTHONPATH": "src"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("warning: tracking: 1,480 metrics and 2 files")
    assert done.stderr.count("\n") == 1


def test_one_process_at_a_time_delivers_a_journal(journal: Journal, uri: str):
    first = Delivery(journal, uri)
    first.step()
    with pytest.raises(Exception, match="train@allo is at work in process"):
        deliver(journal, uri)
    first.close()
    deliver(journal, uri)
    assert arrived(client_of(uri), "k1") == expected(journal)


@pytest.mark.full
def test_a_password_appears_nowhere(
    upstream: int, tmp_path: Path, capfd: Capture, caplog: pytest.LogCaptureFixture
):
    journal = recorded(tmp_path / "journal" / "train@allo", "password")
    with faulty(upstream) as server:
        address = server.uri.replace("//", "//me:hunter2@")
        server.fault, server.calls = "500", 9
        failing = Shipper(journal, address, retry_seconds=1e6)
        assert not failing.finish()
        server.fault = ""
        shipper = Shipper(journal, address)
        assert shipper.finish()
        (run,) = runs_of(client_of(server.uri), "password")
    output = capfd.readouterr()
    files = [path for path in journal.folder.rglob("*") if path.is_file()]
    kept = [path.read_text(errors="replace") for path in files]
    assert "500" in output.err
    texts = [output.out, output.err, caplog.text, str(run.to_dictionary()), *kept]
    assert not [text for text in texts if "hunter2" in text]


def test_the_store_is_that_of_the_environment_or_of_the_checkout(
    tmp_path: Path, monkeypatch: Patch
):
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    assert resolve_uri(tmp_path) == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    monkeypatch.setenv("DVC_ROOT", "/checkout")
    assert resolve_uri(tmp_path) == "sqlite:////checkout/.mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mine.db")
    assert resolve_uri(tmp_path) == "sqlite:////checkout/mine.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert resolve_uri(tmp_path) == "http://host:5000"
