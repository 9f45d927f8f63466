"""Tests that `make sync` delivers later what the stages could not, and says what is left."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.cli import main
from pipeline.tracking import delivery, sync
from pipeline.tracking.champions import Alias
from pipeline.tracking.outbox import Outbox
from tests.pipeline.faulty_server import faulty
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import arrived, client_of, expected, header, recorded, runs_of
from tests.pipeline.small_project import NOBODY


@pytest.fixture
def outboxes(tmp_path: Path, monkeypatch: Patch, uri: str) -> list[Outbox]:
    """Those of a working folder whose store is `uri`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    folder = tmp_path / ".state" / "outbox"
    return [recorded(folder / f"train@allo-{i}.sqlite", f"k{i}") for i in (1, 2)]


@pytest.mark.usefixtures("outboxes")
def test_without_a_server_it_ends_with_6(monkeypatch: Patch, capsys: Capture):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    assert main(["sync"]) == 6
    printed = capsys.readouterr()
    assert printed.err.startswith("sync: 2 outboxes are pending: no server answers")
    assert printed.err.endswith("; run `make sync` when that is mended [exit 6]\n")
    assert "0 of 2 outboxes are complete at http://127.0.0.1:" in printed.out


def test_a_server_that_answers_nothing_is_left_after_three_outboxes(
    outboxes: list[Outbox], tmp_path: Path, monkeypatch: Patch, capsys: Capture
):
    for i in range(3, 6):
        (tmp_path / ".state/outbox" / f"train@allo-{i}.sqlite").write_bytes(
            outboxes[0].path.read_bytes()
        )
    with faulty() as server:
        server.fault, server.is_ill = "503", True
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        assert main(["sync"]) == 6
        assert sum(server.requests.values()) <= 2 * delivery.MOST_UNANSWERED
    assert capsys.readouterr().out.count("the rest is pending: not tried") == 2


def test_sync_delivers_every_outbox_once_and_the_others_where_one_is_damaged(
    outboxes: list[Outbox], uri: str, capsys: Capture
):
    first, second = outboxes
    intact = first.path.read_bytes()
    first.path.write_bytes(b"no database" * 999)
    assert main(["sync"]) == 6
    printed = capsys.readouterr()
    assert "train@allo-1.sqlite is damaged (file is not a database); move it else" in printed.err
    assert "train@allo-2: 1,480 metrics and 1 files sent" in printed.out

    first.path.write_bytes(intact)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out == (
        "train@allo-1: 1,480 metrics and 1 files sent\n"
        f"2 of 2 outboxes are complete at {uri}; 1,480 metrics and 1 files sent\n"
    )
    for outbox, run_key in ((first, "k1"), (second, "k2")):
        assert arrived(client_of(uri), run_key) == expected(outbox)

    for arguments, sent in ((), 0), (("--from-start",), 2 * 1480):
        assert main(["sync", *arguments]) == 0
        assert f"complete at {uri}; {sent:,} metrics" in capsys.readouterr().out
    assert arrived(client_of(uri), "k1") == expected(first)


@pytest.mark.usefixtures("outboxes")
def test_a_run_starts_with_its_first_outbox_and_the_last_one_describes_it(uri: str, tmp_path: Path):
    for time, name in enumerate(("train@b", "evaluate@c", "evaluate@a", "evaluate@b"), 1000):
        outbox = Outbox(tmp_path / ".state" / "outbox" / f"{name}.sqlite")
        outbox.begin(header("k3", params={}), time)
        outbox.put("tag", "mlflow.note.content", name)
    assert main(["sync"]) == 0
    (run,) = runs_of(client_of(uri), "k3")
    assert (run.info.start_time, run.data.tags["mlflow.note.content"]) == (1000, "evaluate@b")


def test_sync_with_nothing_to_do_says_so(tmp_path: Path, monkeypatch: Patch, capsys: Capture):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out.startswith("0 of 0 outboxes are complete at sqlite:///")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("outboxes")
def test_aliases_that_cannot_move_are_told(tmp_path: Path, monkeypatch: Patch, capsys: Capture):
    baseline = {"model": "allo", "presets": {"smoke": {"provenance": {"run_key": "k1"}}}}
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "allo.json").write_text(json.dumps(baseline))
    (tmp_path / ".presets" / "smoke").mkdir(parents=True)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out.endswith("quatrain-allo-smoke: no version in this store\n")

    aliases = [Alias("allo: moved"), Alias("iqn: stays", is_set=False)]
    monkeypatch.setattr(sync, "set_champions", lambda *_, **__: aliases)
    assert main(["sync"]) == 6
    printed = capsys.readouterr()
    assert printed.out.endswith("\nallo: moved\nallo: moved\n")
    assert printed.err == "sync: iqn: stays; iqn: stays [exit 6]\n"

    monkeypatch.setattr(sync, "set_champions", Mock(side_effect=ConnectionError))
    assert main(["sync"]) == 6
    printed = capsys.readouterr()
    assert "2 of 2 outboxes are complete at " in printed.out
    assert printed.err.startswith("sync: the registry's aliases are pending: ")
    assert printed.err.endswith("run `make sync` when that is mended [exit 6]\n")
