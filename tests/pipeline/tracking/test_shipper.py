"""Tests that everything is delivered once and nothing waits, whatever a server does."""

import os
import socket
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
    header,
    recorded,
    runs_of,
    until,
)
from tests.pipeline.small_checkout import call
from tests.pipeline.small_project import NOBODY


@pytest.fixture(autouse=True)
def patience(monkeypatch: Patch) -> None:
    """A delivery begins at once."""
    monkeypatch.setattr(run, "FIRST_SECONDS", 0)


@pytest.mark.full
def test_a_real_server_has_everything_once_whatever_broke(
    upstream: int, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    outbox = recorded(tmp_path / ".state" / "outbox" / "train@allo-1.sqlite", "broken")
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


@pytest.mark.parametrize(
    ("first", "pause", "least", "most"),
    [(1e6, 0.01, 0, 0), (0, 1e6, 1, 1), (0, 0.01, 3, 1000)],
    ids=["at the end of short work", "once until a pause ends", "after each pause"],
)
def test_a_delivery_is_tried(
    outbox: Outbox, monkeypatch: Patch, first: float, pause: float, least: int, most: int
):
    attempts: list[Delivery] = []
    monkeypatch.setattr(run, "FIRST_SECONDS", first)
    monkeypatch.setattr(run, "RETRY_SECONDS", pause)
    monkeypatch.setattr(Delivery, "send", lambda each: attempts.append(each) or OSError("away"))
    ship = Shipper([outbox], NOBODY)
    until(lambda: len(attempts) >= least)
    time.sleep(0.1)
    assert len(attempts) <= most
    assert not ship.finish()
    assert attempts


def test_another_process_may_deliver_beside_a_training_that_waits(outbox: Outbox, uri: str):
    ship = Shipper([outbox], uri)
    until(lambda: outbox.next_record() is None)
    until(lambda: Delivery(outbox, uri).send() is None)
    assert ship.finish()


def test_what_is_recorded_or_added_after_a_delivery_is_delivered_too(
    outbox: Outbox, tmp_path: Path, uri: str
):
    writing = Outbox(tmp_path / ".state" / "outbox" / "group.sqlite")
    writing.begin(header("g1"))
    ship = Shipper([writing], uri)
    until(lambda: writing.next_record() is None)
    ship.add(outbox)
    until(lambda: outbox.next_record() is None)
    writing.metrics([("best", 1, 0.5)])
    writing.end("FINISHED")
    assert ship.finish()
    assert arrived(client_of(uri), "g1") == expected(writing)
    assert runs_of(client_of(uri), "g1")[0].info.status == "FINISHED"
    assert arrived(client_of(uri), "k1") == expected(outbox)


def test_a_courier_delivers_what_other_processes_record_from_now_on(
    tmp_path: Path, uri: str, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    folder = run.outboxes(tmp_path)
    old = recorded(folder / "train@allo-1.sqlite", "k1")
    os.utime(old.path, (1, 1))
    with run.courier(tmp_path, tmp_path) as variables:
        monkeypatch.setenv(*next(iter(variables.items())))
        for number in (1, 2):
            path = folder / f"evaluate@allo-{number}.sqlite"
            with run.Run.start(tmp_path, path, header(f"stage {number}")) as stage:
                stage.metrics([("best", 1, number)])
    for number in (1, 2):
        (stored,) = runs_of(client_of(uri), f"stage {number}")
        assert (stored.data.metrics["best"], stored.info.status) == (number, "FINISHED")
    assert old.next_record() is not None


def test_a_stage_whose_courier_dies_delivers_itself(tmp_path: Path, uri: str, monkeypatch: Patch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("QUATRAIN_COURIER", str(os.getpid()))
    with run.Run.start(tmp_path, run.outboxes(tmp_path) / "train@allo-1.sqlite", header("k1")):
        monkeypatch.setenv("QUATRAIN_COURIER", str(2**30))  # no process
    assert [each.info.status for each in runs_of(client_of(uri), "k1")] == ["FINISHED"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("closed", "no server answers"),
        ("silent", "no complete answer within 2 s"),
        ("damaged", "not a database"),
    ],
)
def test_a_store_that_cannot_take_it_keeps_no_stage_waiting_and_costs_one_warning(
    outbox: Outbox, tmp_path: Path, capfd: Capture, kind: str, why: str
):
    (tmp_path / "mlflow.db").write_bytes(b"something else, as long as a header" * 20)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = NOBODY if kind == "closed" else f"http://127.0.0.1:{silent.getsockname()[1]}"
        if kind == "damaged":
            uri = f"sqlite:///{tmp_path}/mlflow.db"
        assert not Shipper([outbox], uri).finish()
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
from pipeline.tracking import run
from pipeline.tracking.outbox import Outbox
run.FIRST_SECONDS = 0
shipper = run.Shipper([Outbox(Path(sys.argv[1]))], sys.argv[2])
sys.exit(7 if shipper.finish(5) else 0)
"""
    with faulty() as server:
        server.fault = "hang"
        arguments = (str(outbox.path), server.uri)
        said = call(ROOT, "python", "-c", code, *arguments, MLFLOW_HTTP_REQUEST_TIMEOUT="100000")
    assert said.startswith("warning: tracking: 1,480 metrics and 1 files")
    assert said.count("\n") == 1
