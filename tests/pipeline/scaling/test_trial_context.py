"""A stage in a sweep computes what it always does, and records it as a trial of the sweep."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.runtime.stage import Stage
from pipeline.scaling.outcomes import SweepRecord
from pipeline.tracking import export
from pipeline.tracking import run as runs
from pipeline.tracking.origin import TrialContext, trial_context
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Parent
from tests.conftest import ROOT, params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import client_of, deliver, header, runs_of
from tests.pipeline.small_project import NOBODY

SWEEP = Parent("sweep-key", "sweep-tried", tag="quatrain.sweep", ends_with_child=False)
CONTEXT = TrialContext("0123abcd", "tried", SWEEP, {"git.commit": "c0ffee"})


@pytest.fixture
def shipped(monkeypatch: Patch) -> list[Outbox]:
    """The outboxes that are delivered from a thread, without the thread."""
    outboxes: list[Outbox] = []

    def ship(stage: list[Outbox], *_: Any, **__: Any) -> SimpleNamespace:
        outboxes.extend(stage)
        return SimpleNamespace(finish=lambda _: None)

    monkeypatch.setattr(runs, "Shipper", ship)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    return outboxes


def begin(root: Path) -> Outbox:
    stage = Stage("train", "allo", root, params_with({}))
    with runs.Run.of_stage(stage, "k" * 64, "k" * 64, "d" * 64) as run:
        run.metrics([("train/loss", 1, 0.5)])
        export.record_model(stage, run, None, None)
    return run


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
    tmp_path: Path, shipped: list[Outbox], exported: list[str], monkeypatch: Patch
):
    for name, value in CONTEXT.of_trial("0004").to_environment().items():
        monkeypatch.setenv(name, value)
    outbox = begin(tmp_path)
    assert outbox.header is not None
    assert (outbox.header.run_key, outbox.header.run_name) == ("0123abcd-0004", "tried-0004")
    assert outbox.header.parent == SWEEP
    tags = outbox.header.tags
    assert (tags["quatrain.trial"], tags["git.commit"]) == ("0004", "c0ffee")
    assert tags["quatrain.model"] == "allo"
    assert outbox.header.params["train.learning_rate"] == "0.001"
    assert outbox.history() == {"train/loss": [(1, 0.5)]}
    assert (shipped, exported, outbox.records("model")) == ([], [], [])


def test_outside_a_sweep_a_stage_delivers_its_run_and_registers_its_model(
    tmp_path: Path, shipped: list[Outbox], exported: list[str], monkeypatch: Patch
):
    monkeypatch.delenv("QUATRAIN_TRIAL", raising=False)
    assert trial_context() is None
    outbox = begin(tmp_path)
    assert outbox.header is not None
    assert outbox.header.run_key == "k" * 64
    assert outbox.header.parent is not None
    assert outbox.header.parent.tag == "quatrain.pipeline"
    assert shipped == [outbox]
    assert (exported, len(outbox.records("model"))) == (["allo"], 1)


def test_a_trial_ends_no_outbox_of_another(
    tmp_path: Path, shipped: list[Outbox], exported: list[str], monkeypatch: Patch
):
    other = Outbox(tmp_path / ".state" / "outbox" / "train@allo-other.sqlite")
    other.begin(header("k1"))
    monkeypatch.setenv(*CONTEXT.of_trial("0004").to_environment().popitem())
    begin(tmp_path)
    assert (other.records("end"), shipped, exported) == ([], [], [])


def test_a_context_comes_back_from_the_environment(monkeypatch: Patch):
    monkeypatch.setenv(*CONTEXT.of_trial("0004").to_environment().popitem())
    assert trial_context() == CONTEXT.of_trial("0004")
    assert CONTEXT.of_trial("0004").run_key != CONTEXT.of_trial("0005").run_key


# Parents.


@pytest.mark.full
@pytest.mark.parametrize(("ends_with_child", "status"), [(False, "RUNNING"), (True, "FINISHED")])
def test_only_a_pipeline_ends_with_its_child(
    ends_with_child: bool, status: str, uri: str, tmp_path: Path
):
    parent = SWEEP._replace(ends_with_child=ends_with_child)
    sweep = Outbox(tmp_path / "sweep.sqlite")
    sweep.begin(header(parent.run_key, tags={parent.tag: "true"}))
    child = Outbox(tmp_path / "child.sqlite")
    child.begin(header("k1", parent=parent))
    child.end("FINISHED")
    for outbox in (sweep, child):
        deliver(outbox, uri)
    client = client_of(uri)
    ((above,), (below,)) = (runs_of(client, key) for key in (parent.run_key, "k1"))
    assert (above.info.status, below.info.status) == (status, "FINISHED")
    assert below.data.tags["mlflow.parentRunId"] == above.info.run_id


def test_the_run_of_a_trial_starts_with_its_training(uri: str, tmp_path: Path):
    for time, verb in enumerate(("train", "evaluate"), 1000):
        Outbox(tmp_path / f"t1-{verb}@allo.sqlite").begin(header("k1", params={}), time)
    trial, storage = cast(Any, SimpleNamespace(name="t1", state="finished")), cast(Any, None)
    record = SweepRecord(tmp_path, storage, CONTEXT, {}, "allo", uri)
    record.ended(trial)
    record.finish("FINISHED", [])
    assert runs_of(client_of(uri), "k1")[0].info.start_time == 1000


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
