"""A stage in a sweep computes what it always does, and records it as a trial of the sweep."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.stage import Stage
from pipeline.tracking import export
from pipeline.tracking import run as runs
from pipeline.tracking.journal import Journal, Parent
from pipeline.tracking.pending import JournalDelivery, deliver
from pipeline.tracking.run import Run
from pipeline.tracking.trial_context import TrialContext, trial_context
from tests.conftest import ROOT, params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import client_of, header, recorded, runs_of
from tests.pipeline.small_project import NOBODY

SWEEP = Parent("sweep-key", "sweep-tried", tag="quatrain.sweep", ends_with_child=False)
CONTEXT = TrialContext("0123abcd", "tried", SWEEP, {"git.commit": "c0ffee"})


@pytest.fixture
def shipped(monkeypatch: Patch) -> list[Journal]:
    """The journals that are delivered from a thread, without the thread."""
    journals: list[Journal] = []

    def ship(journal: Journal, *_: Any, **__: Any) -> SimpleNamespace:
        journals.append(journal)
        return SimpleNamespace(wake=lambda: None, finish=lambda: None)

    monkeypatch.setattr(runs, "Shipper", ship)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    return journals


def begin(root: Path) -> Journal:
    stage = Stage("train", "allo", root, params_with({}))
    with Run.of_stage(stage, "k" * 64, "k" * 64, "d" * 64) as run:
        run.metrics([("train/loss", 1, 0.5)])
        export.record_model(stage, run, None, None, "d" * 64)
    return Journal(run.journal.folder)


@pytest.fixture
def exported(monkeypatch: Patch) -> list[str]:
    """Which models are exported, without exporting them."""
    names: list[str] = []

    def save(stage: Stage, _: Any, folder: Path) -> None:
        names.append(stage.model)
        (folder / "model").mkdir()

    monkeypatch.setattr(export, "export", lambda *_: export.Exported({}, {}, {}))
    monkeypatch.setattr(export, "save_model", save)
    return names


def test_a_trial_has_a_run_of_its_own_below_the_sweep_and_delivers_nothing(
    tmp_path: Path, shipped: list[Journal], exported: list[str], monkeypatch: Patch
):
    for name, value in CONTEXT.of_trial("0004").to_environment().items():
        monkeypatch.setenv(name, value)
    journal = begin(tmp_path)
    assert journal.header is not None
    assert (journal.header.run_key, journal.header.run_name) == ("0123abcd-0004", "tried-0004")
    assert journal.header.parent == SWEEP
    tags = journal.header.tags
    assert (tags["quatrain.trial"], tags["git.commit"]) == ("0004", "c0ffee")
    assert tags["quatrain.model"] == "allo"
    assert journal.header.params["train.learning_rate"] == "0.001"
    assert journal.history() == {"train/loss": [(1, 0.5)]}
    assert (shipped, exported, journal.has_model) == ([], [], False)


def test_outside_a_sweep_a_stage_delivers_its_run_and_registers_its_model(
    tmp_path: Path, shipped: list[Journal], exported: list[str], monkeypatch: Patch
):
    monkeypatch.delenv("QUATRAIN_TRIAL", raising=False)
    assert trial_context() is None
    journal = begin(tmp_path)
    assert journal.header is not None
    assert journal.header.run_key == "k" * 64
    assert journal.header.parent is not None
    assert journal.header.parent.tag == "quatrain.pipeline"
    assert [each.folder for each in shipped] == [journal.folder]
    assert (exported, journal.has_model) == (["allo"], True)


def test_a_trial_ends_no_journal_of_another(
    tmp_path: Path, shipped: list[Journal], exported: list[str], monkeypatch: Patch
):
    other = Journal(tmp_path / ".state" / "journal" / "train@allo-other")
    other.begin(header("k1"))
    monkeypatch.setenv(*CONTEXT.of_trial("0004").to_environment().popitem())
    begin(tmp_path)
    ends = [line for _, line in Journal(other.folder).lines() if line["kind"] == "end"]
    assert (ends, shipped, exported) == ([], [], [])


def test_a_context_comes_back_from_the_environment(monkeypatch: Patch):
    monkeypatch.setenv(*CONTEXT.of_trial("0004").to_environment().popitem())
    assert trial_context() == CONTEXT.of_trial("0004")
    assert CONTEXT.of_trial("0004").run_key != CONTEXT.of_trial("0005").run_key


# Parents.


def test_a_journal_from_before_sweeps_can_be_read(tmp_path: Path):
    journal = Journal(tmp_path)
    journal.begin(header("k1", parent=SWEEP))
    path = tmp_path / "journal.jsonl"
    line = json.loads(path.read_text().partition("\n")[0])
    line["parent"] = {"run_key": "p1", "run_name": "pipeline-default"}
    path.write_text(json.dumps(line) + "\n")
    loaded = Journal(tmp_path).header
    assert loaded is not None
    assert loaded.parent == Parent("p1", "pipeline-default", "quatrain.pipeline", True)


@pytest.mark.full
@pytest.mark.parametrize(("ends_with_child", "status"), [(False, "RUNNING"), (True, "FINISHED")])
def test_only_a_pipeline_ends_with_its_child(
    ends_with_child: bool, status: str, uri: str, tmp_path: Path
):
    parent = SWEEP._replace(ends_with_child=ends_with_child)
    sweep = Journal(tmp_path / "sweep")
    sweep.begin(header(parent.run_key, tags={parent.tag: "true"}))
    child = Journal(tmp_path / "child")
    child.begin(header("k1", parent=parent))
    child.end("FINISHED")
    deliveries = [JournalDelivery(journal.folder, uri) for journal in (sweep, child)]
    assert deliver(deliveries, wait_seconds=0) == []
    client = client_of(uri)
    ((above,), (below,)) = (runs_of(client, key) for key in (parent.run_key, "k1"))
    assert (above.info.status, below.info.status) == (status, "FINISHED")
    assert below.data.tags["mlflow.parentRunId"] == above.info.run_id


def test_a_journal_that_is_not_delivered_says_why_and_leaves_the_others_alone(tmp_path: Path):
    journal = recorded(tmp_path / "train@allo-1", "k1")
    delivery = JournalDelivery(journal.folder, NOBODY)
    assert not delivery.send()
    assert delivery.pending is not None
    assert delivery.summary().startswith("train@allo-1 (allo-k1, key k1): 0 metrics and 0 files")
    assert deliver([delivery, JournalDelivery(journal.folder, NOBODY)], wait_seconds=0)


# What a stage in the folder of a trial is told.


def test_the_key_of_a_stage_does_not_depend_on_its_folder(tmp_path: Path, monkeypatch: Patch):
    keys = []
    for name in ("a", "b/deep", "c"):
        root = tmp_path / name
        shutil.copytree(ROOT / "inputs", root / "inputs")
        monkeypatch.chdir(root)
        keys.append(Stage("train", "allo", root, params_with({})).key(["digest"]))
    monkeypatch.chdir(ROOT)
    keys.append(Stage("train", "allo", ROOT, params_with({"preset": "smoke"})).key(["digest"]))
    assert len(set(keys)) == 1
    others = [
        Stage("train", "allo", ROOT, params_with({"seed": 1})).key(["digest"]),
        Stage("train", "allo", ROOT, params_with({"allo": {"seeds": 2}})).key(["digest"]),
        Stage("train", "allo", ROOT, params_with({})).key(["other"]),
    ]
    assert len({*keys, *others}) == 4


@pytest.mark.parametrize(
    ("is_child", "code", "said"),
    [
        (False, 143, "train@allo: interrupted by SIGTERM; the next run continues [exit 143]"),
        (True, 2, "train@allo: params.yaml"),
    ],
)
def test_a_stage_whose_parent_has_died_leaves_at_once(
    is_child: bool, code: int, said: str, tmp_path: Path
):
    parent = os.getpid() if is_child else os.getppid()
    environment = os.environ | {"QUATRAIN_PARENT": str(parent)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.run(
        [sys.executable, "-m", "pipeline.train", "allo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == code, process.stderr
    assert process.stderr.startswith(said)
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / ".state").exists()
