"""Tests that everything is delivered once and nothing waits, whatever a server does."""

import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.tracking import run
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import Shipper
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


def outbox_in(tmp_path: Path, key: str) -> Outbox:
    return recorded(tmp_path / ".state" / "outbox" / "train@allo-1.sqlite", key)


@pytest.mark.full
def test_a_real_server_has_everything_once_whatever_broke(
    upstream: int, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    outbox = outbox_in(tmp_path, "broken")
    with faulty(upstream) as server:
        for fault, calls in (("503", 4), ("reset", 5), ("hang", 3), ("page", 6), ("500", 5)):
            server.fault, server.calls = fault, calls
            with pytest.raises(Exception, match=r"127\.0\.0\.1|JSON|answer"):
                deliver(outbox, server.uri)
        server.fault, server.calls = "lost reply", 0
        deliver(outbox, server.uri, attempts=50)
        server.fault = ""
        client = client_of(server.uri)
        assert arrived(client, "broken") == expected(outbox)
        assert [run.info.status for run in runs_of(client, "broken")] == ["FINISHED"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "calls", "retry_seconds"), [("reset", 8, 0.1), ("500", 0, 1e6)], ids=["run", "end"]
)
def test_a_server_that_is_back_during_the_run_or_at_its_end_gets_everything(
    upstream: int, tmp_path: Path, fault: str, calls: int, retry_seconds: float
):
    outbox = outbox_in(tmp_path, f"back-{fault}")
    with faulty(upstream) as server:
        server.fault, server.calls = fault, calls
        ship = Shipper([outbox], server.uri, retry_seconds=retry_seconds)
        until(lambda: server.calls < (-2 if calls else 0))
        server.fault = ""
        assert ship.finish()
        assert arrived(client_of(server.uri), f"back-{fault}") == expected(outbox)


def test_an_attempt_that_fails_while_the_stage_ends_is_repeated(
    outbox: Outbox, uri: str, monkeypatch: Patch
):
    begun, ending, step = threading.Event(), threading.Event(), Delivery.step

    def fail_at_the_end(_: Delivery) -> bool:
        begun.set()
        assert ending.wait(60)
        monkeypatch.setattr(Delivery, "step", step)
        raise ConnectionResetError

    monkeypatch.setattr(Delivery, "step", fail_at_the_end)
    monkeypatch.setattr(Shipper, "wake", lambda _: ending.set())  # which `finish` calls
    ship = Shipper([outbox], uri, wait_seconds=60)
    assert begun.wait(60)
    assert ship.finish()
    assert arrived(client_of(uri), "k1") == expected(outbox)


def test_a_failing_server_is_retried_after_a_pause(outbox: Outbox, monkeypatch: Patch):
    monkeypatch.setattr(run, "POLL_SECONDS", 0.01)
    with faulty() as server:
        server.fault = "500"
        ship = Shipper([outbox], server.uri, retry_seconds=1e6)
        until(lambda: server.calls <= -2)  # one call, which mlflow itself makes twice
        outbox.metrics([("train/loss", 1400, 0.5)])
        time.sleep(0.2)
        assert server.calls == -2
        ship.finish()


@pytest.mark.parametrize(
    ("kind", "why"),
    [("closed", "no server answers"), ("silent", "no answer"), ("damaged", "not a database")],
)
def test_a_store_that_cannot_take_it_keeps_no_stage_waiting_and_costs_one_warning(
    outbox: Outbox, tmp_path: Path, capfd: Capture, kind: str, why: str
):
    (tmp_path / "mlflow.db").write_bytes(b"something else, as long as a header" * 20)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = NOBODY if kind == "closed" else f"http://127.0.0.1:{silent.getsockname()[1]}"
        if kind == "damaged":
            uri = f"sqlite:///{tmp_path}/mlflow.db"
        assert not Shipper([outbox], uri, wait_seconds=1e6).finish()
    (line,) = capfd.readouterr().err.splitlines()
    start, _, rest = line.partition(" (")
    assert start == (
        f"warning: tracking: 1,480 metrics and 1 files of train@allo-1 are not yet at {uri}"
    )
    assert why in rest
    assert rest.endswith("); they are kept: `make sync` sends them")


@pytest.mark.full
def test_a_process_ends_while_a_call_hangs(outbox: Outbox):
    code = """
import sys
from pathlib import Path
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import Shipper
shipper = Shipper([Outbox(Path(sys.argv[1]))], sys.argv[2], wait_seconds=10)
sys.exit(7 if shipper.finish() else 0)
"""
    with faulty() as server:
        server.fault = "hang"
        arguments = (str(outbox.path), server.uri)
        said = call(ROOT, "python", "-c", code, *arguments, MLFLOW_HTTP_REQUEST_TIMEOUT="100000")
    assert said.startswith("warning: tracking: 1,480 metrics and 1 files")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("verb", "seconds"), [("wake", 1e6), ("finish", 1e6), ("", 0.05)])
def test_a_run_is_delivered_from_its_first_record_on_or_after_a_while(
    outbox: Outbox, monkeypatch: Patch, verb: str, seconds: float
):
    asked = threading.Event()
    monkeypatch.setattr(Delivery, "step", lambda _: asked.set())
    ship = Shipper([outbox], NOBODY, latest_seconds=seconds)
    if verb:
        assert not asked.wait(0.05)
        getattr(ship, verb)()
    assert asked.wait(60)
    assert ship.finish()


def test_many_writers_share_an_sqlite_store(uri: str, tmp_path: Path):
    outboxes = [recorded(tmp_path / str(i) / "train@allo.sqlite", f"k{i}") for i in range(4)]
    ships = [Shipper([each], uri, wait_seconds=120, retry_seconds=0.05) for each in outboxes]
    until(lambda: all(each.pending() == (0, 0) for each in outboxes))
    assert [ship.finish() for ship in ships] == [True] * 4
    for i, outbox in enumerate(outboxes):
        assert arrived(client_of(uri), f"k{i}") == expected(outbox)
