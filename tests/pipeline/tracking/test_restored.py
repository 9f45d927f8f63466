"""Tests that results which DVC restored are named by a tag of the pipeline's run, once."""

from typing import Any

import pytest

from pipeline.tracking import run
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import RESTORED_TAG, outboxes, path_of, record_restored, restored
from tests.pipeline.recorded_runs import header
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_project import NOBODY

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
