"""Tests that everything is delivered once and nothing waits, whatever a server does."""

import socket
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
from tests.pipeline.faulty_server import faulty
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
from tests.pipeline.small_checkout import call
from tests.pipeline.small_project import NOBODY


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
    upstream: int,
    tmp_path: Path,
    fault: str,
    calls: int,
    retry_seconds: float,
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
        assert ending.wait(60)
        monkeypatch.setattr(Delivery, "step", step)
        raise ConnectionResetError

    monkeypatch.setattr(Delivery, "step", fail_at_the_end)
    monkeypatch.setattr(Shipper, "wake", lambda _: ending.set())  # which `finish` calls
    shipper = Shipper(journal, uri)
    assert begun.wait(60)
    assert shipper.finish()
    assert arrived(client_of(uri), "k1") == expected(journal)


def test_a_failing_server_is_retried_after_a_pause(journal: Journal, monkeypatch: Patch):
    monkeypatch.setattr("pipeline.tracking.shipper.POLL_SECONDS", 0.01)
    with faulty() as server:
        server.fault = "500"
        shipper = Shipper(journal, server.uri, retry_seconds=1e6)
        until(lambda: server.calls <= -2)  # one call, which mlflow itself makes twice
        journal.metrics([("train/loss", 1400, 0.5)])
        time.sleep(0.2)
        assert server.calls == -2
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
        shown = NOBODY if kind == "closed" else f"http://127.0.0.1:{silent.getsockname()[1]}"
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
        arguments = (str(journal.folder), server.uri)
        said = call(ROOT, "python", "-c", code, *arguments, MLFLOW_HTTP_REQUEST_TIMEOUT="100000")
    assert said.startswith("warning: tracking: 1,480 metrics and 2 files")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("verb", "seconds"), [("wake", 1e6), ("finish", 1e6), ("", 0.05)])
def test_a_run_is_delivered_from_its_first_record_on_or_after_a_while(
    journal: Journal, monkeypatch: Patch, verb: str, seconds: float
):
    asked = threading.Event()
    monkeypatch.setattr(Delivery, "step", lambda _: asked.set())
    shipper = Shipper(journal, NOBODY, latest_seconds=seconds)
    if verb:
        assert not asked.wait(0.05)
        getattr(shipper, verb)()
    assert asked.wait(60)
    assert shipper.finish()


def test_one_process_at_a_time_delivers_a_journal(journal: Journal, uri: str):
    first = Delivery(journal, uri)
    first.step()
    with pytest.raises(Exception, match="train@allo is at work in process"):
        deliver(journal, uri)
    first.close()
    deliver(journal, uri)
    assert arrived(client_of(uri), "k1") == expected(journal)


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
