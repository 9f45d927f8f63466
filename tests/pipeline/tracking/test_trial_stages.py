"""Tests that a stage in a trial computes what it always does, records it, and sends nothing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.stage import Stage
from pipeline.tracking import export
from pipeline.tracking import run as runs
from pipeline.tracking.outbox import Outbox
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header


@pytest.mark.parametrize("is_trial", [True, False], ids=["in a trial", "alone"])
def test_a_stage_in_a_trial_delivers_nothing_and_registers_no_model(
    is_trial: bool, tmp_path: Path, monkeypatch: Patch
):
    shipped: list[Outbox] = []
    exported: list[str] = []

    def ship(outboxes: list[Outbox], _uri: str) -> SimpleNamespace:
        shipped.extend(outboxes)
        return SimpleNamespace(finish=lambda _: None)

    def save(stage: Stage, _: Any, folder: Path) -> None:
        exported.append(stage.model)
        (folder / "model").mkdir()

    monkeypatch.setattr(runs, "Shipper", ship)
    monkeypatch.setattr(export, "export", lambda *_: export.Exported({}, {}, {}))
    monkeypatch.setattr(export, "save_model", save)
    # What a stage outside of a trial would refuse.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///runs" if is_trial else "http://127.0.0.1:9")
    monkeypatch.setenv("QUATRAIN_TRIAL", "1" if is_trial else "")
    killed = Outbox(tmp_path / ".state" / "outbox" / "train@allo-other.sqlite")
    killed.begin(header("k1"))
    stage = Stage("train", "allo", tmp_path, params_with({}))
    with runs.Run.of_stage(stage, "k" * 64, "k" * 64, "d" * 64) as outbox:
        outbox.metrics([("train/loss", 1, 0.5)])
        export.record_model(stage, outbox, None, None)
    assert outbox.history() == {"train/loss": [(1, 0.5)]}
    assert outbox.has("end")
    assert outbox.has("model") != is_trial
    assert killed.has("end") != is_trial
    assert [each.name for each in shipped] == ([] if is_trial else [outbox.name, killed.name])
    assert exported == ([] if is_trial else ["allo"])
