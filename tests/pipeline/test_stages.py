"""Tests that an interrupted or diverged training reports it, saves its work and resumes exactly."""

import signal
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from pipeline.runtime.costs import stored
from pipeline.stages.evaluate import with_intervals
from pipeline.storage.checkpoints import Checkpoints
from quatrain.progress import Progress, TrainingDiverged
from quatrain.registry import load
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import Pretended, Project, flip_bit, last_line


def checkpoint(project: Project) -> int:
    folders = (project.root / ".state" / project.name("train")).iterdir()
    latest = Checkpoints(max(folders, key=lambda kept: kept.stat().st_mtime)).latest()
    assert latest is not None
    return latest.step


def damage(project: Project, step: int) -> None:
    """Turn a bit of a checkpoint."""
    for path in (project.root / ".state").glob("train@*/*/*/learner.safetensors"):
        if f'"step": {step}' in path.with_name("manifest.json").read_text():
            flip_bit(path)


@pytest.mark.parametrize("uninterrupted", ["allo", "active_dynamics"], indirect=True)
def test_interruptions_change_no_byte(collected: Project, uninterrupted: Project, capsys: Capture):
    """Nor does a damaged checkpoint, for there is the one before it."""
    stage = collected.name("train")
    for after, yields in ((3, 4), (3, 8), (4, 12)):
        assert collected.call("train", Pretended(signal.SIGTERM, after)) == 143
        *said, last = capsys.readouterr().err.splitlines()
        assert last == f"{stage}: interrupted by SIGTERM; the next run continues [exit 143]"
        assert checkpoint(collected) == collected.steps(yields)
        assert collected.statuses("train") == ["KILLED"]
        assert not (collected.root / "models").exists()
        if yields == 8:
            damage(collected, collected.steps(8))
    assert said[0].startswith(f"{stage}: passed over a checkpoint: .state/{stage}/")
    assert said[1] == f"{stage}: continues at step {collected.steps(7)} of {collected.steps()}"
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")
    assert collected.history_steps()[-1] == collected.steps()
    assert collected.statuses("train") == ["FINISHED"]


def test_a_run_lasts_as_long_as_the_work_of_all_its_attempts(collected: Project):
    """And its evaluation counts from the end of the training."""
    assert collected.call("collect") == 0
    assert collected.call("train", Pretended(signal.SIGTERM, 3)) == 143
    (path,) = (collected.root / ".state" / "costs").glob("train@*")
    interrupted = stored(path)["costs"]
    assert collected.call("train") == collected.call("evaluate") == 0
    (training,), (evaluation,) = collected.outboxes("train"), collected.outboxes("evaluate")
    ends = [outbox.record("end") for outbox in (training, evaluation)]
    times = [outbox.history("time/") for outbox in (training, evaluation)]
    begins = training.begun_at
    for verb, end, spent in zip(("train", "evaluate"), ends, times, strict=True):
        assert end is not None
        assert end.time - begins == round(1000 * spent[f"{verb}_seconds"][-1][1])
        begins = end.time
    assert times[0]["collect_seconds"][-1][0] == collected.steps()
    assert times[0]["train_seconds"][-1][1] > interrupted["seconds"]


def test_an_interruption_saves_before_a_checkpoint_is_due(
    collected: Project, uninterrupted: Project
):
    collected.choose(overlay={"checkpoint_seconds": 3600})
    assert collected.call("train", Pretended(signal.SIGINT, after=2)) == 130
    assert checkpoint(collected) == collected.steps(3)
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_a_finished_training_is_not_repeated(
    evaluated: Project, uninterrupted: Project, monkeypatch: Patch
):
    for path in evaluated.weights.iterdir():
        path.unlink()  # as DVC does before it runs a stage
    monkeypatch.setattr(load("allo").train, "run_chunk", lambda *_: pytest.fail("it trains again"))
    assert evaluated.call("train") == 0
    assert evaluated.hashes("models") == uninterrupted.hashes("models")


def test_a_checkpoint_without_metrics_is_not_used(
    collected: Project, uninterrupted: Project, capsys: Capture
):
    assert collected.call("train", Pretended(signal.SIGTERM, after=4)) == 143
    (outbox,) = collected.outboxes("train")
    outbox.path.unlink()
    assert collected.call("train") == 0
    assert "continues at" not in capsys.readouterr().err
    assert collected.hashes("models") == uninterrupted.hashes("models")


def diverge(patch: Patch, model: str, yields: int) -> None:
    """Its training diverges after so many yields."""
    learning = load(model).train
    sound = learning.train

    def diverging(*arguments: Any) -> Iterator[Progress]:
        yield from islice(sound(*arguments), yields)
        raise TrainingDiverged("the loss is not finite; lower the rate")

    patch.setattr(learning, "train", diverging)


def test_a_divergence_leaves_the_last_good_state(
    collected: Project, uninterrupted: Project, monkeypatch: Patch, capsys: Capture
):
    collected.choose(overlay={"checkpoint_seconds": 3600})
    with monkeypatch.context() as patch:
        diverge(patch, collected.model, yields=3)
        assert collected.call("train") == 7
    assert last_line(capsys).startswith(
        f"{collected.name('train')}: the loss is not finite; lower the rate; "
        f"last good checkpoint: step {collected.steps(3)}, in "
    )
    assert checkpoint(collected) == collected.steps(3)
    assert collected.statuses("train") == ["FAILED"]
    assert not (collected.root / "models").exists()
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_judged_scores_come_with_their_intervals_over_seeds():
    interval = {"share": 0.9, "share_low": 0.8, "share_high": 1.0}
    scores = interval | {"share_sd": 0.1, "score": 2.0, "loss": 1.0}
    assert with_intervals(scores, ["share", "score"]) == interval | {"score": 2.0}
