"""Tests that results restored by DVC get the run that their stages would have recorded, once."""

import os
import shutil
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.runtime.command import run_guarded
from pipeline.runtime.stage import Stage, run_on_device
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.tracking import backfill
from pipeline.tracking.journal import HISTORY, Journal
from pipeline.tracking.store import resolve_uri
from tests.conftest import ROOT
from tests.pipeline import small_checkout
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import arrived, client_of, deliver, runs_of
from tests.pipeline.small_project import NOBODY, Pretended, Project

# Of a run, on the page of MLflow's UI.
MOST_CHARTS = 40
CODE = f"{ROOT}:{ROOT / 'src'}"


@pytest.fixture
def restored(evaluated: Project, uri: str, monkeypatch: Patch) -> Project:
    """Returns a project with all results and no records, as a cache restores it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    shutil.rmtree(evaluated.root / ".state")
    return evaluated


def call(project: Project) -> int:
    stage = Stage("backfill", project.model, project.root, read_params(project.root))
    return run_guarded(stage.name, lambda: run_on_device(stage, backfill.backfill, Pretended()))


def lacking(project: Project) -> list[str]:
    return backfill.missing_records(
        project.root, read_params(project.root), project.model, resolve_uri(project.root)
    )


def journal(project: Project, verb: str) -> Journal:
    (folder,) = project.journals(verb)
    return Journal(folder)


def values(journal: Journal) -> dict[str, list[tuple[int, str]]]:
    """Returns every metric except for times and system metrics, which belong to one execution."""
    history = journal.history().items()
    return {
        name: [(step, repr(value)) for step, value in sorted(points)]
        for name, points in history
        if name.startswith((HISTORY, "train/", "eval/"))
    }


def kept(journal: Journal) -> list[tuple[str, str]]:
    """Returns folder and name of its files, and of its model."""
    lines = [line for _, line in journal.lines() if line["kind"] in ("artifact", "model")]
    return sorted((line.get("path", "model of"), Path(line["file"]).name) for line in lines)


def run_key(project: Project) -> str:
    return str(artifacts.load(project.weights).info["run_key"])


def everything(project: Project) -> dict[str, bytes]:
    folder = project.root / ".state" / "journal"
    return {str(path): path.read_bytes() for path in folder.rglob("journal.jsonl")}


@pytest.mark.parametrize("uninterrupted", ["allo", "active_dynamics"], indirect=True)
def test_restored_results_are_recorded_once_like_results_of_a_stage(
    uninterrupted: Project, restored: Project, uri: str
):
    assert lacking(restored) == ["train", "evaluate"]
    assert call(restored) == 0
    assert lacking(restored) == []
    for verb in ("train", "evaluate"):
        result, original = journal(restored, verb), journal(uninterrupted, verb)
        assert values(result) == values(original)
        assert values(result)
        assert kept(result) == kept(original)
        assert result.folder.name == original.folder.name
        assert result.header is not None
        assert original.header is not None
        for key in ("run_key", "params", "inputs"):
            assert getattr(result.header, key) == getattr(original.header, key)
        assert restored.statuses(verb) == ["FINISHED"]
    charts = journal(restored, "train").history() | journal(uninterrupted, "evaluate").history()
    assert len([name for name in charts if not name.startswith(HISTORY)]) <= MOST_CHARTS
    (run,) = runs_of(client_of(uri), run_key(restored))
    assert run.data.tags["quatrain.cache_hit"] == "true"
    assert run.data.tags["quatrain.cache_hit.evaluate"] == "true"
    assert run.info.status == "FINISHED"
    assert run.info.end_time == run.info.start_time, "nobody worked"

    before, there = everything(restored), arrived(client_of(uri), run_key(restored))
    assert call(restored) == 0
    assert everything(restored) == before
    assert arrived(client_of(uri), run_key(restored)) == there


def test_tags_describe_the_machine_of_the_training_not_of_the_restore(restored: Project):
    contents, info, _ = artifacts.load(restored.weights)
    settings = info["settings"] | {"cpu": "of elsewhere"}
    artifacts.save(restored.weights, contents, info | {"settings": settings})
    assert call(restored) == 0
    header = journal(restored, "train").header
    assert header is not None
    assert header.tags["quatrain.cpu"] == "of elsewhere"
    assert header.tags["dvc.stage"] == "train@allo"


def test_what_the_store_has_is_not_recorded_again(
    uninterrupted: Project, restored: Project, uri: str, monkeypatch: Patch
):
    state = restored.root / ".state"
    shutil.copytree(uninterrupted.root / ".state", state)
    deliver(journal(restored, "train"), uri)
    shutil.rmtree(state)
    assert call(restored) == 0
    assert restored.journals("train") == []
    assert values(journal(restored, "evaluate")) == values(journal(uninterrupted, "evaluate"))
    (run,) = runs_of(client_of(uri), run_key(restored))
    assert "quatrain.cache_hit" not in run.data.tags
    assert run.data.tags["quatrain.cache_hit.evaluate"] == "true"

    shutil.rmtree(state)
    there = arrived(client_of(uri), run_key(restored))
    assert call(restored) == 0
    assert everything(restored) == {}
    assert arrived(client_of(uri), run_key(restored)) == there
    assert lacking(restored) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    assert lacking(restored) == ["train", "evaluate"], "another store may not have it"


def test_nothing_is_recorded_if_the_store_is_unreachable(
    restored: Project, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    assert call(restored) == 6
    assert capsys.readouterr().err == (
        f"backfill@{restored.model}: the tracking store cannot be asked (no server answers); "
        "run `make sync` when that is mended [exit 6]\n"
    )
    assert everything(restored) == {}


def test_a_killed_training_is_completed_from_restored_results(
    uninterrupted: Project, restored: Project
):
    original = journal(uninterrupted, "train")
    killed = Journal(restored.root / ".state" / "journal" / original.folder.name)
    assert original.header is not None
    killed.begin(original.header)
    killed.metrics([(name, *points[0]) for name, points in original.history().items()])
    killed.end("KILLED")
    killed.close()
    assert lacking(restored) == ["train", "evaluate"]
    assert call(restored) == 0
    assert restored.statuses("train") == ["FINISHED"]
    assert values(journal(restored, "train")) == values(original)


def test_changed_scores_are_recorded_again(restored: Project):
    """The scores of a restored evaluation with other settings belong to the same training."""
    assert call(restored) == 0
    scores, verdict = (restored.reports / f"{name}.json" for name in ("scores", "verdict"))
    artifacts.write_json(scores, artifacts.read_json(scores) | {"cosine_min": 0.5})
    digest = {"scores_sha256": artifacts.file_digest(scores)}
    artifacts.write_json(verdict, artifacts.read_json(verdict) | digest)
    assert lacking(restored) == ["evaluate"]


# What is not at hand, or is not what params.yaml says, is on no record.


def test_results_of_other_params_or_none_and_scores_of_another_learner_are_ignored(
    restored: Project,
):
    params = (restored.root / "params.yaml").read_text()
    restored.choose(overlay={"allo": {"train": {"learning_rate": 0.5}}})
    assert lacking(restored) == []
    (restored.root / "params.yaml").write_text(params)
    contents, info, _ = artifacts.load(restored.weights)
    artifacts.save(restored.weights, contents, info | {"run_key": "of another training"})
    assert lacking(restored) == ["train"]
    for damaged in ("config.json", "manifest.json"):
        (restored.weights / damaged).write_text("{")
        assert lacking(restored) == []
    shutil.rmtree(restored.weights)
    assert lacking(restored) == []
    assert call(restored) == 0
    assert not (restored.root / ".state").exists()


def test_missing_records_imports_neither_mlflow_nor_a_framework(restored: Project):
    code = (
        "import sys; from pathlib import Path\n"
        "from pipeline.storage.params_file import read_params\n"
        "from pipeline.tracking.backfill import missing_records\n"
        "root = Path.cwd()\n"
        "print(missing_records(root, read_params(root), 'allo', 'sqlite:///x'))\n"
        "print({'mlflow', 'jax', 'torch'} & {*sys.modules})"
    )
    said = small_checkout.call(restored.root, "python", "-c", code, PYTHONPATH=CODE)
    assert said == "['train', 'evaluate']\nset()\n"


# From the command line.


@pytest.mark.full
def test_sync_records_delivers_and_registers_restored_results(
    restored: Project, uri: str, monkeypatch: Patch, capfd: Capture
):
    environment = os.environ | {"PYTHONPATH": CODE}
    monkeypatch.setattr("pipeline.dvc.sync.environment", lambda *_: environment)
    assert main(["sync"]) == 0
    output = capfd.readouterr()
    for verb in ("train", "evaluate"):
        line = f"backfill@allo: {verb}@allo was restored from a cache; its run is recorded now\n"
        assert line in output.err
    assert f"2 of 2 journals are complete at {uri}" in output.out
    client, name = client_of(uri), "quatrain-allo"
    (run,) = runs_of(client, run_key(restored))
    (version,) = client.search_model_versions(f"name = '{name}'")
    assert version.run_id == run.info.run_id
    assert client.get_model_version_by_alias(name, "candidate").version == version.version
