"""Tests that a store gets every record of an outbox once, whatever is lost or restored."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.runtime.processes import folder_lock
from pipeline.tracking import store
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Parent
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import (
    arrived,
    client_of,
    deliver,
    expected,
    header,
    recorded,
    recorded_model,
    runs_of,
)

PIPELINE = Parent("p1", "default 2026-01-01 12:00")


@pytest.fixture
def small(tmp_path: Path) -> Outbox:
    """A run with few records, each of another kind."""
    outbox = Outbox(tmp_path / ".state" / "outbox" / "train@allo-1.sqlite")
    outbox.begin(header("k1", params={"train.steps": "3"}, parent=PIPELINE))
    outbox.metrics([("train/loss", step, 1 / (step + 3)) for step in range(40)])
    outbox.put("artifact", "plots/curve.png", data=b"picture")
    outbox.put("tag", "mlflow.note.content", "all hold")
    outbox.end("FINISHED")
    return outbox


def has_all(uri: str, outbox: Outbox) -> bool:
    client = client_of(uri)
    (run,) = runs_of(client, "k1")
    (parent,) = runs_of(client, "p1")
    files = [file.path for file in client.list_artifacts(run.info.run_id, "plots")]
    assert arrived(client, "k1") == expected(outbox)
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.data.tags["mlflow.note.content"] == "all hold"
    return files == ["plots/curve.png"] and run.data.params == {"train.steps": "3"}


def test_a_run_is_delivered_completely(outbox: Outbox, uri: str, tmp_path: Path):
    delivery = deliver(outbox, uri)
    assert (delivery.metrics, delivery.files, outbox.pending()) == (1480, 1, (0, 0))
    client = client_of(uri)
    (run,) = runs_of(client, "k1")
    assert arrived(client, "k1") == expected(outbox)
    times = [record.time for record in (outbox.record("begin"), outbox.record("end")) if record]
    assert [run.info.start_time, run.info.end_time] == times
    assert (run.info.status, run.info.run_name) == ("FINISHED", "allo-k1")
    assert run.data.tags["quatrain.model"] == "allo"
    assert len(run.data.params) == 131
    assert run.data.params["train.number_129"] == "129"
    assert re.fullmatch(r"8000 characters, sha256 [0-9a-f]{64}", run.data.params["env.layout"])
    assert [f.path for f in client.list_artifacts(run.info.run_id, "plots")] == ["plots/curve.png"]
    assert len(list((tmp_path / "artifacts").rglob("curve.png"))) == 1  # beside the database
    (read,) = run.inputs.dataset_inputs
    assert (read.dataset.name, read.dataset.digest) == ("allo", "0" * 36)
    assert [(tag.key, tag.value) for tag in read.tags] == [("mlflow.data.context", "training")]
    assert deliver(outbox, uri).metrics == 0
    assert deliver(outbox, uri, from_start=True).metrics == 1480
    assert arrived(client, "k1") == expected(outbox)


def test_whichever_reply_is_lost_the_next_attempt_completes_the_run_without_duplicates(
    small: Outbox, uri: str, monkeypatch: Patch
):
    plain = store.BoundedClient.call
    calls: list[str] = []
    failing = 0

    def call(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        calls.append(method)
        answer = plain(self, method, *arguments, **named)
        if len(calls) == failing:
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(store.BoundedClient, "call", call)
    while failing == 0 or len(calls) >= failing:
        failing += 1
        calls.clear()
        for run_key in ("k1", "p1") if failing > 1 else ():
            for run in runs_of(client_of(uri), run_key):
                client_of(uri).delete_run(run.info.run_id)
        first = Delivery(Outbox(small.path), uri, from_start=True)
        error = first.send()
        if error is not None:
            deliver(small, uri)
        assert has_all(uri, small), calls[failing - 1]
    assert {"create_run", "log_batch", "log_artifact", "set_terminated"} <= {*calls}
    assert failing > 20


def test_a_resumed_training_adds_only_new_metrics(uri: str, tmp_path: Path):
    path = tmp_path / ".state" / "outbox" / "train@allo.sqlite"
    outbox = recorded(path, "k1", end="KILLED")
    deliver(outbox, uri)
    (run,) = runs_of(client_of(uri), "k1")
    assert run.info.status == "KILLED"
    outbox.begin(header("k1"))
    outbox.metrics([("train/loss", step, 1 / (step + 3)) for step in range(1200, 1600)])
    assert deliver(outbox, uri).metrics == 200
    assert client_of(uri).get_run(run.info.run_id).info.status == "RUNNING"
    outbox.end("FINISHED")
    deliver(outbox, uri)
    assert client_of(uri).get_run(run.info.run_id).info.status == "FINISHED"
    assert arrived(client_of(uri), "k1") == expected(outbox)


def test_an_evaluation_adds_to_the_run_of_its_training_which_ends_with_it(
    small: Outbox, uri: str, tmp_path: Path
):
    evaluation = Outbox(tmp_path / ".state" / "outbox" / "evaluate@allo-1.sqlite")
    params = {"train.steps": "33", "evaluate.pairs": "5"}
    evaluation.begin(header("k1", params=params, parent=PIPELINE))
    evaluation.metrics([("eval/cosine", 1400, 0.97)])
    later = evaluation.last_time + 5000
    evaluation.end("FAILED", later)
    for outbox in (evaluation, small):  # in the other order, too, the last one to end counts
        deliver(outbox, uri)
    client = client_of(uri)
    (run,) = runs_of(client, "k1")
    (pipeline,) = runs_of(client, "p1")
    assert arrived(client, "k1") == expected(small, evaluation)
    assert run.data.params == {"train.steps": "33", "evaluate.pairs": "5"}
    assert run.data.tags["quatrain.changed_params"] == "train.steps = 3"
    assert [(each.info.status, each.info.end_time) for each in (run, pipeline)] == [
        ("FAILED", later)
    ] * 2
    assert pipeline.info.run_name == PIPELINE.run_name
    assert pipeline.data.tags["quatrain.pipeline"] == "true"


def test_a_card_and_tags_that_come_before_their_version_are_those_of_the_version(
    uri: str, tmp_path: Path
):
    folder = tmp_path / ".state" / "outbox"
    training = recorded_model(folder / "train@allo-1.sqlite", "k1")
    for time, name, run_key in ((3, "other", "k2"), (1, "older", "k1"), (2, "newer", "k1")):
        evaluation = Outbox(folder / f"evaluate@allo-{name}.sqlite")
        evaluation.begin(header(run_key, params={}))
        evaluation.put("card", "quatrain-allo", name, time=time)
        evaluation.put("version", "quatrain-allo", json.dumps({"verdict": name}), time=time)
        deliver(evaluation, uri)
    (folder / "evaluate@allo-damaged.sqlite").write_bytes(b"no database" * 999)
    deliver(training, uri)
    (version,) = client_of(uri).search_model_versions("name = 'quatrain-allo'")
    assert (version.description, version.tags["verdict"]) == ("newer", "newer")


def test_a_run_deleted_during_its_delivery_is_created_again(small: Outbox, uri: str):
    client = client_of(uri)
    delivery = Delivery(small, uri)
    for _ in range(3):
        delivery.step()
    (deleted,) = runs_of(client, "k1")
    client.delete_run(deleted.info.run_id)
    assert delivery.send() is not None
    deliver(small, uri)
    assert runs_of(client, "k1")[0].info.run_id != deleted.info.run_id
    assert has_all(uri, small)


def test_the_oldest_run_of_a_key_is_used_and_an_empty_duplicate_deleted(
    outbox: Outbox, uri: str, tmp_path: Path
):
    client = store.open_client(uri).client
    experiment = client.create_experiment("quatrain", str(tmp_path / "files"))
    twins = [
        client.create_run(experiment, start, {"quatrain.run_key": "k1"}).info.run_id
        for start in (900, 700, 800)
    ]
    deliver(outbox, uri)
    assert [run.info.run_id for run in runs_of(client, "k1")] == [twins[1]]
    assert arrived(client, "k1") == expected(outbox)
    # An older one whose creation was answered too late is no place to begin anew.
    client.create_run(experiment, 600, {"quatrain.run_key": "k1"})
    delivery = deliver(outbox, uri)
    assert ([run.info.run_id for run in runs_of(client, "k1")], delivery.metrics) == ([twins[1]], 0)


def test_what_is_done_again_after_another_replaced_it_is_what_a_run_shows(uri: str, tmp_path: Path):
    for text, value in (("passed", 1.0), ("broken", 0.5), ("passed", 1.0)):
        report = Outbox(tmp_path / ".state" / "outbox" / f"report-{text}.sqlite")
        report.begin(header("p1"), anew=True)
        report.metrics([("allo/cosine_mean", 0, value)])
        report.put("tag", "mlflow.note.content", text)
        report.put("artifact", "report/report.html", data=text.encode())
        report.end("FINISHED")
        deliver(report, uri)
    client = client_of(uri)
    (run,) = runs_of(client, "p1")
    page = Path(client.download_artifacts(run.info.run_id, "report/report.html"))
    assert (run.data.tags["mlflow.note.content"], page.read_text()) == ("passed", "passed")
    assert run.data.metrics == {"allo/cosine_mean": 1.0}


def test_a_copied_store_takes_no_files_into_the_place_of_the_other(outbox: Outbox, uri: str):
    client = store.open_client(uri).client
    client.create_experiment("quatrain", f"/old/{Path(uri).parent.name}/artifacts")
    with pytest.raises(store.Unreachable, match=r"^the store is a copy, or was moved: it keeps"):
        deliver(outbox, uri)


def test_a_deleted_experiment_is_named(outbox: Outbox, uri: str):
    client = store.open_client(uri).client
    client.delete_experiment(client.create_experiment("quatrain"))
    message = "experiment 'quatrain' is deleted there; restore it in the UI"
    with pytest.raises(store.Unreachable, match=message):
        deliver(outbox, uri)


def database_copied(uri: str, source: Path, target: Path) -> None:
    client_of(uri)._tracking_client.store.engine.dispose()
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_store_of_an_older_backup_gets_again_what_it_lost(
    small: Outbox, uri: str, tmp_path: Path, steps: int
):
    database, backup = tmp_path / "mlflow.db", tmp_path / "backup.db"
    partly = Delivery(small, uri)
    for _ in range(steps):
        partly.step()
    database_copied(uri, database, backup)
    deliver(small, uri)
    database_copied(uri, backup, database)
    assert deliver(small, uri).metrics == 40
    assert has_all(uri, small)


def test_a_training_that_goes_on_at_a_restored_store_leaves_no_gap(uri: str, tmp_path: Path):
    database, backup = tmp_path / "mlflow.db", tmp_path / "backup.db"
    outbox = Outbox(tmp_path / "train@allo-1.sqlite")
    outbox.begin(header("k1"))
    outbox.metrics([("train/loss", 1, 0.5)])
    deliver(outbox, uri)
    database_copied(uri, database, backup)
    outbox.metrics([("train/loss", 2, 0.25)])
    delivery = deliver(outbox, uri)
    database_copied(uri, backup, database)
    outbox.metrics([("train/loss", 3, 0.125)])
    delivery._call = Mock(side_effect=ConnectionError)
    assert isinstance(delivery.send(), ConnectionError)
    assert delivery.send() is None
    assert arrived(client_of(uri), "k1") == expected(outbox)


def test_a_training_is_not_sent_again_while_its_evaluation_runs(
    small: Outbox, uri: str, tmp_path: Path
):
    deliver(small, uri)
    evaluation = Outbox(tmp_path / ".state" / "outbox" / "evaluate@allo-1.sqlite")
    evaluation.begin(header("k1", params={}, parent=PIPELINE))
    deliver(evaluation, uri)
    assert deliver(small, uri).metrics == 0
    assert [run.info.status for run in runs_of(client_of(uri), "k1")] == ["RUNNING"]


def test_one_process_at_a_time_delivers_an_outbox_and_each_store_gets_it_whole(
    small: Outbox, uri: str, template: Path
):
    first = Delivery(small, uri)
    with folder_lock(small.path.parent / "locks" / "train@allo-1-delivery"):
        assert "train@allo-1-delivery is at work in process" in str(first.send())
    assert first.send() is None
    second = template.with_name("second.db")
    shutil.copy(template, second)
    deliver(small, f"sqlite:///{second}")
    assert has_all(f"sqlite:///{second}", small)
    assert first.send() is None
    assert (first.metrics, has_all(uri, small)) == (80, True)
