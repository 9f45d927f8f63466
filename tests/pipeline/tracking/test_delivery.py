"""Tests that every line of a journal is delivered once, even if it is sent repeatedly."""

import re
from pathlib import Path

import pytest

from pipeline.tracking import store
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal
from pipeline.tracking.shipper import Shipper
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


def test_a_run_is_delivered_completely(journal: Journal, uri: str, tmp_path: Path):
    deliver(journal, uri)
    client = client_of(uri)
    (run,) = runs_of(client, "k1")
    assert arrived(client, "k1") == expected(journal)
    times = [line["time"] for _, line in journal.lines() if line["kind"] in ("begin", "end")]
    assert [run.info.start_time, run.info.end_time] == times
    assert (run.info.status, run.info.run_name) == ("FINISHED", "allo-k1")
    assert run.data.tags["quatrain.model"] == "allo"
    assert len(run.data.params) == 131
    assert run.data.params["train.number_129"] == "129"
    shown = r"8000 characters, sha256 [0-9a-f]{64}: whole in artifact params/env.layout.txt"
    assert re.fullmatch(shown, run.data.params["env.layout"])
    assert [f.path for f in client.list_artifacts(run.info.run_id, "plots")] == ["plots/curve.png"]
    assert len(list((tmp_path / "artifacts").rglob("curve.png"))) == 1  # beside the database
    assert [f.file_size for f in client.list_artifacts(run.info.run_id, "params")] == [8000]
    (read,) = run.inputs.dataset_inputs
    assert (read.dataset.name, read.dataset.digest) == ("allo", "0" * 36)
    assert [(tag.key, tag.value) for tag in read.tags] == [("mlflow.data.context", "training")]


@pytest.mark.parametrize(
    "note", [None, b"{", b"[]", b'{"uri": "http://elsewhere", "run_id": "x", "offset": 9}']
)
def test_a_second_delivery_changes_nothing(journal: Journal, uri: str, note: bytes | None):
    deliver(journal, uri)
    if note is not None:
        (journal.folder / "cursor.json").write_bytes(note)
    deliver(Journal(journal.folder), uri)
    assert arrived(client_of(uri), "k1") == expected(journal)


def test_an_interrupted_delivery_continues_at_any_line(journal: Journal, uri: str):
    delivered = 0
    while Delivery(journal, uri).step():
        delivered += 1
    assert delivered == 6
    assert arrived(client_of(uri), "k1") == expected(journal)


def test_a_resumed_training_adds_only_new_metrics(uri: str, tmp_path: Path):
    folder = tmp_path / "journal" / "train@allo"
    journal = recorded(folder, "k1", end="KILLED")
    deliver(journal, uri)
    assert [run.info.status for run in runs_of(client_of(uri), "k1")] == ["KILLED"]
    resumed = Journal(folder)
    resumed.begin(header("k1"))
    resumed.metrics([("train/loss", step, 1 / (step + 3)) for step in range(1200, 1600)])
    deliver(resumed, uri)
    assert [run.info.status for run in runs_of(client_of(uri), "k1")] == ["RUNNING"]
    resumed.end("FINISHED")
    deliver(resumed, uri)
    assert [run.info.status for run in runs_of(client_of(uri), "k1")] == ["FINISHED"]
    assert len(arrived(client_of(uri), "k1")["train/loss"]) == 1600
    assert arrived(client_of(uri), "k1") == expected(resumed)


def test_an_evaluation_adds_to_the_run_of_its_training(journal: Journal, uri: str, tmp_path: Path):
    evaluation = Journal(tmp_path / "journal" / "evaluate@allo")
    evaluation.begin(header("k1", params={"train.number_3": "33", "evaluate.pairs": "5"}))
    evaluation.metrics([("eval/cosine", 1400, 0.97)])
    evaluation.end("FINISHED")
    deliver(journal, uri)
    deliver(evaluation, uri)
    (run,) = runs_of(client_of(uri), "k1")
    assert arrived(client_of(uri), "k1") == expected(journal, evaluation)
    assert run.data.params["train.number_3"] == "3"
    assert run.data.params["evaluate.pairs"] == "5"
    assert run.data.tags["quatrain.changed_params"] == "train.number_3 = 33"


@pytest.mark.parametrize("steps", [3, 9], ids=["during", "after"])
def test_a_run_deleted_during_or_after_its_delivery_is_created_again(
    journal: Journal, uri: str, steps: int
):
    client = client_of(uri)
    delivery = Delivery(journal, uri)
    for _ in range(steps):
        delivery.step()
    (deleted,) = runs_of(client, "k1")
    client.delete_run(deleted.info.run_id)
    if steps == 9:
        delivery.close()
        delivery = Delivery(Journal(journal.folder), uri)
    while delivery.step():
        pass
    delivery.close()
    assert runs_of(client, "k1")[0].info.run_id != deleted.info.run_id
    assert arrived(client, "k1") == expected(journal)


def test_the_oldest_run_of_a_key_is_used_and_an_empty_duplicate_deleted(
    journal: Journal, uri: str, tmp_path: Path
):
    client = store.open_client(uri)
    experiment = client.create_experiment("quatrain", str(tmp_path / "files"))
    twins = [
        client.create_run(experiment, start, {"quatrain.run_key": "k1"}).info.run_id
        for start in (900, 700, 800)
    ]
    deliver(journal, uri)
    assert [run.info.run_id for run in runs_of(client, "k1")] == [twins[1]]
    assert arrived(client, "k1") == expected(journal)


def test_a_deleted_experiment_is_named(journal: Journal, uri: str):
    client = store.open_client(uri)
    client.delete_experiment(client.create_experiment("quatrain"))
    message = "experiment 'quatrain' is deleted there; restore it in the UI"
    with pytest.raises(store.Unreachable, match=message):
        deliver(journal, uri)


def test_many_writers_share_an_sqlite_store(uri: str, tmp_path: Path):
    journals = [recorded(tmp_path / str(i) / "journal" / "train@allo", f"k{i}") for i in range(6)]
    shippers = [Shipper(journal, uri, retry_seconds=0.05) for journal in journals]
    until(lambda: all(Delivery(journal, uri).pending() == (0, 0) for journal in journals))
    assert [shipper.finish() for shipper in shippers] == [True] * 6
    for i, journal in enumerate(journals):
        assert arrived(client_of(uri), f"k{i}") == expected(journal)
