"""Tests that a run's model becomes one registered version, and that runs have a parent."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal, Parent
from pipeline.tracking.model_registry import RUN_KEY_TAG
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import client_of, deliver, header, recorded_model, runs_of

NAME = "quatrain-allo"


def versions_in(uri: str) -> list[Any]:
    versions = client_of(uri).search_model_versions(f"name = '{NAME}'")
    return sorted(versions, key=lambda version: int(version.version))


def run_key_of(uri: str, alias: str) -> str:
    return client_of(uri).get_model_version_by_alias(NAME, alias).tags[RUN_KEY_TAG]


def test_the_model_of_a_run_is_registered_once_with_its_files_as_the_candidate(
    uri: str, tmp_path: Path
):
    journal = recorded_model(tmp_path / "journal" / "one", "k1")
    deliver(journal, uri)
    (version,) = versions_in(uri)
    (run,) = runs_of(client_of(uri), "k1")
    assert version.run_id == run.info.run_id
    assert run_key_of(uri, "candidate") == "k1"
    stored = Path(version.source)
    assert (stored / "code" / "answer.py").read_text() == "ANSWER = 42\n"
    (logged,) = client_of(uri).search_logged_models([run.info.experiment_id])
    assert (logged.status.value, logged.source_run_id) == ("READY", run.info.run_id)
    assert [output.model_id for output in run.outputs.model_outputs] == [logged.model_id]

    (journal.folder / "cursor.json").unlink()
    deliver(Journal(journal.folder), uri)
    assert len(versions_in(uri)) == 1
    assert len(client_of(uri).search_logged_models([run.info.experiment_id])) == 1


@pytest.mark.parametrize(
    "lost",
    [
        "create_logged_model",
        "log_model_artifacts",
        "create_model_version",
        "set_registered_model_alias",
    ],
)
def test_a_call_whose_reply_is_lost_is_repeated_without_duplicates(
    uri: str, tmp_path: Path, monkeypatch: Patch, lost: str
):
    plain, failed = Delivery._call, []

    def failing(self: Delivery, method: str, *arguments: Any, **named: Any) -> Any:
        answer = plain(self, method, *arguments, **named)
        if method == lost and not failed:
            failed.append(method)
            raise ConnectionError("the answer was lost")
        return answer

    monkeypatch.setattr(Delivery, "_call", failing)
    deliver(recorded_model(tmp_path / "journal" / "one", "k1"), uri, attempts=2)
    assert failed == [lost]
    assert len(versions_in(uri)) == 1
    assert run_key_of(uri, "candidate") == "k1"


def test_the_candidate_is_the_model_trained_last_not_the_model_delivered_last(
    uri: str, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setattr("pipeline.tracking.journal.now", lambda: 1000)
    early = recorded_model(tmp_path / "journal" / "early", "k1")
    monkeypatch.setattr("pipeline.tracking.journal.now", lambda: 2000)
    deliver(recorded_model(tmp_path / "journal" / "late", "k2"), uri)
    deliver(early, uri)
    assert [version.tags[RUN_KEY_TAG] for version in versions_in(uri)] == ["k2", "k1"]
    assert run_key_of(uri, "candidate") == "k2"


def test_a_journal_keeps_one_model(tmp_path: Path):
    journal = recorded_model(tmp_path / "journal" / "one", "k1")
    journal.model(tmp_path / "journal" / "servable", NAME)
    kinds = [line["kind"] for _, line in Journal(journal.folder).lines()]
    assert (kinds.count("model"), kinds[-1]) == (1, "end")
    assert Journal(journal.folder).has_model


def test_runs_of_a_pipeline_have_one_parent_that_ends_with_them(uri: str, tmp_path: Path):
    parent = Parent("p1", "pipeline-default-p1")
    for key in ("k1", "k2"):
        deliver(recorded_model(tmp_path / "journal" / key, key, parent), uri)
    client = client_of(uri)
    (above,) = runs_of(client, "p1")
    children = [run for key in ("k1", "k2") for run in runs_of(client, key)]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {above.info.run_id}
    assert (above.info.run_name, above.info.status) == ("pipeline-default-p1", "FINISHED")
    assert above.info.end_time == children[1].info.end_time

    killed = Journal(tmp_path / "journal" / "killed")
    killed.begin(header("k3", parent=parent))
    killed.end("KILLED")
    deliver(killed, uri)
    assert runs_of(client, "p1")[0].info.status == "KILLED"


def test_the_card_is_the_description_of_version_and_model_and_gets_the_scores(
    uri: str, tmp_path: Path
):
    first = recorded_model(tmp_path / "journal" / "train@allo-1", "k1")
    deliver(first, uri)
    described = lambda: client_of(uri).get_registered_model(NAME).description  # noqa: E731
    card = "## What it is\n\nk1\n\n## Scores\n\nnone\n\n## Limits\n\nmany"
    assert described() == card
    evaluation = Journal(tmp_path / "journal" / "evaluate@allo-1")
    evaluation.begin(header("k1"))
    for _ in range(2):
        evaluation.card(NAME, "## Scores\n\nall hold")
    evaluation.end("FINISHED")
    deliver(evaluation, uri)
    assert [line["kind"] for _, line in evaluation.lines()].count("card") == 1
    assert [version.description for version in versions_in(uri)] == [
        card.replace("none", "all hold")
    ]
    assert described() == card.replace("none", "all hold")

    deliver(recorded_model(tmp_path / "journal" / "train@allo-2", "k2"), uri)
    (evaluation.folder / "cursor.json").unlink()
    deliver(Journal(evaluation.folder), uri)
    assert described() == card.replace("k1", "k2"), "the older version is no candidate any more"
