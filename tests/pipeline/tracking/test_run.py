"""What a stage records of its run: its evaluation and what DVC restored, and less in a trial."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.stage import Stage
from pipeline.tracking import export, run
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import RESTORED_TAG, Run, outboxes, path_of, record_restored, restored
from quatrain.progress import Evaluation
from quatrain.registry import load
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_project import NOBODY, Project


def test_a_run_has_the_judged_scores_whatever_the_baseline_is_and_a_trial_no_more(
    evaluated: Project, monkeypatch: Patch
):
    """A score that is not finite is NaN; a damaged baseline is of no concern."""
    (evaluated.root / "baselines" / "allo.json").write_text("{")
    scores = {"cosine_mean": 0.5, "cosine_min": math.nan, "gap": 1.0}
    monkeypatch.setattr(load("allo").evaluate, "evaluate", lambda *_: Evaluation(scores, None))
    for outbox in evaluated.outboxes("evaluate"):
        outbox.path.unlink()
    assert evaluated.call("evaluate") == 0
    (outbox,) = evaluated.outboxes("evaluate")
    recorded = outbox.history("eval/")
    assert {name: rows[-1][1] for name, rows in recorded.items()} == pytest.approx(
        {"cosine_mean": 0.5, "cosine_min": math.nan, "orthogonality": math.nan}, nan_ok=True
    )
    table = "| cosine_mean | 0.5000 |\n| cosine_min | - |\n| orthogonality | - |"
    files = {record.name: record.data for record in outbox.records("artifact")}
    stored = json.loads(files["evaluation/scores.json"] or b"")
    assert stored == {"cosine_mean": 0.5, "cosine_min": None, "gap": 1.0}
    card, note = outbox.record("card"), outbox.record("tag")
    assert card is not None
    assert note is not None
    assert card.body.startswith("## What it is")
    assert "\n\n## Scores (preset default)\n\n| metric | score |" in card.body
    assert f"{table}\n\n## Limits" in card.body
    assert note.body.endswith(table)
    monkeypatch.setenv("QUATRAIN_TRIAL", "1")
    outbox.path.unlink()
    assert evaluated.call("evaluate") == 0
    assert not outbox.has("card")


@pytest.mark.parametrize("is_trial", [True, False], ids=["in a trial", "alone"])
def test_a_stage_in_a_trial_delivers_nothing_and_registers_no_model(
    is_trial: bool, tmp_path: Path, monkeypatch: Patch
):
    shipped: list[Outbox] = []
    exported: list[str] = []

    def ship(outboxes: list[Outbox], _uri: str) -> SimpleNamespace:
        shipped.extend(outboxes)
        return SimpleNamespace(finish=lambda _: None)

    def pack(stage: Stage, _: Any, folder: Path) -> None:
        exported.append(stage.model)
        folder.mkdir()

    monkeypatch.setattr(run, "Shipper", ship)
    monkeypatch.setattr(export, "export", lambda *_: export.Exported({}, {}, {}))
    monkeypatch.setattr(export, "pack", pack)
    # What a stage outside of a trial would refuse.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///runs" if is_trial else "http://127.0.0.1:9")
    monkeypatch.setenv("QUATRAIN_TRIAL", "1" if is_trial else "")
    killed = Outbox(tmp_path / ".state" / "outbox" / "train@allo-other.sqlite")
    killed.begin(header("k1"))
    stage = Stage("train", "allo", tmp_path, params_with({}))
    with Run.of_stage(stage, "k" * 64, "k" * 64, "d" * 64) as outbox:
        outbox.metrics([("train/loss", 1, 0.5)])
        export.record_model(stage, outbox, None, None)
    assert outbox.history("train/") == {"loss": [(1, 0.5)]}
    assert outbox.has("end")
    assert outbox.has("model") != is_trial
    assert killed.has("end") != is_trial
    assert [each.name for each in shipped] == ([] if is_trial else [outbox.name, killed.name])
    assert exported == ([] if is_trial else ["allo"])


KEY = "f" * 64


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the outboxes that were delivered, without a server."""
    names: list[str] = []

    class Silent(run.Shipper):
        def __init__(self, stage: list[Outbox], *_: Any, **__: Any) -> None:
            names.extend(outbox.name for outbox in stage)

        def finish(self, *_: float) -> bool:
            return True

    monkeypatch.setattr(run, "Shipper", Silent)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    return names


def test_restored_results_are_named_on_the_run_of_the_pipeline_once(
    space: Workspace, shipped: list[str]
):
    for _ in range(2):
        record_restored(space.root, ["allo", "iqn"])
    (path,) = outboxes(space.root).glob("*.sqlite")
    outbox = Outbox(path)
    assert shipped == [outbox.name]
    assert outbox.header is not None
    assert outbox.header.tags["quatrain.pipeline"] == "true"
    assert [tag.body for tag in outbox.records("tag") if tag.name == RESTORED_TAG] == [
        "train@allo, evaluate@allo, train@iqn, evaluate@iqn"
    ]
    assert [end.body for end in outbox.records("end")] == ["FINISHED"]


def test_what_was_made_here_is_not_restored(space: Workspace):
    space.train(KEY)
    Outbox(path_of(space.root, "train@allo", KEY)).begin(header(KEY))
    Outbox(path_of(space.root, "evaluate@allo", "0")).begin(header("another"))
    assert list(restored(space.root, "allo")) == ["evaluate@allo"]
    Outbox(path_of(space.root, "evaluate@allo", "1")).begin(header(KEY))
    assert list(restored(space.root, "allo")) == []
