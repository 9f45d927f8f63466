"""Tests that an interrupted or diverged training reports it, saves its work and resumes exactly."""

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pipeline.runtime.errors import Interrupted
from pipeline.runtime.stage import Stage
from pipeline.storage.checkpoints import Checkpoints
from pipeline.storage.params_file import read_params
from pipeline.tracking.journal import Journal
from pipeline.tracking.run import Run
from quatrain.progress import Progress, TrainingDiverged
from quatrain.registry import load
from tests.pipeline.recorded_runs import client_of, runs_of
from tests.pipeline.small_project import Pretended, Project, each_model, flip_bit, last_line


def checkpoint(project: Project) -> int:
    folder = max(
        (project.root / ".state" / project.name("train")).iterdir(),
        key=lambda kept: kept.stat().st_mtime,
    )
    latest = Checkpoints(folder).latest()
    assert latest is not None
    return latest.step


# Interruptions.


@each_model
def test_training_interrupted_repeatedly_gives_the_same_bytes(
    collected: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = collected.name("train")
    for yields in (4, 8, 12):
        assert collected.call("train", Pretended(signal.SIGTERM, after=3)) == 143
        assert (
            last_line(capsys)
            == f"{stage}: interrupted by SIGTERM; the next run continues [exit 143]"
        )
        assert checkpoint(collected) == collected.steps(yields)
        assert collected.statuses("train") == ["KILLED"]
        assert not (collected.root / "models").exists()
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")
    assert collected.history_steps()[-1] == collected.steps()
    assert collected.statuses("train") == ["FINISHED"]


def test_an_interruption_saves_a_checkpoint_before_it_is_due(
    collected: Project,
) -> None:
    collected.choose(overlay={"checkpoint_seconds": 3600})
    assert collected.call("train", Pretended(signal.SIGINT, after=2)) == 130
    assert checkpoint(collected) == collected.steps(3)


def test_checkpoint_frequency_changes_no_byte(collected: Project, uninterrupted: Project) -> None:
    collected.choose(overlay={"checkpoint_seconds": 3600})
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_a_finished_training_unknown_to_dvc_is_not_repeated(
    collected: Project, uninterrupted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert collected.call("train") == 0
    for path in (collected.weights).iterdir():
        path.unlink()  # as DVC does before it runs a stage
    monkeypatch.setattr(load("allo").train, "run_chunk", lambda *_: pytest.fail("it trains again"))
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_a_checkpoint_without_its_metrics_is_not_used(
    collected: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collected.call("train", Pretended(signal.SIGTERM, after=4)) == 143
    (folder,) = collected.journals("train")
    (folder / "journal.jsonl").unlink()
    assert collected.call("train") == 0
    assert "continues at" not in capsys.readouterr().err
    assert collected.hashes("models") == uninterrupted.hashes("models")


@each_model
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    collected: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collected.call("train", Pretended(signal.SIGTERM, after=4)) == 143
    stage, kept, damaged = collected.name("train"), collected.steps(4), collected.steps(5)
    for path in (collected.root / ".state" / stage).glob("*/*/learner.safetensors"):
        if f'"step": {damaged}' in path.with_name("manifest.json").read_text():
            flip_bit(path)
    assert collected.call("train") == 0
    errors = capsys.readouterr().err
    assert f"{stage}: passed over a checkpoint: .state/{stage}/" in errors
    assert f"{stage}: continues at step {kept} of {collected.steps()}" in errors
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_changed_params_start_a_new_run_and_end_the_killed_one(
    collected: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collected.call("train", Pretended(signal.SIGTERM, after=4)) == 143
    (killed,) = collected.journals("train")
    kept = (killed / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (killed / "journal.jsonl").write_bytes(b"".join(kept[:-1]))  # as kill -9 would have left it
    capsys.readouterr()
    collected.choose(overlay={"allo": {"train": {"learning_rate": 0.02}}})
    assert collected.call("train") == 0
    assert "continues at" not in capsys.readouterr().err
    assert checkpoint(collected) == collected.steps()
    assert sorted(collected.statuses("train")) == ["FINISHED", "KILLED"]
    assert [line for _, line in Journal(killed).lines()][-1]["status"] == "KILLED"


def test_no_run_is_left_running_in_the_store(
    collected: Project, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    stage = Stage("train", "allo", collected.root, read_params(collected.root))
    killed = Run.of_stage(stage, "k" * 64, "k" * 64, "d" * 64)
    for shipper in killed.shippers:
        shipper.finish()  # locks go with their process; here they are given back
    killed.lock.close()
    client = client_of(uri)
    assert [run.info.status for run in runs_of(client, "k" * 64)] == ["RUNNING"]
    with pytest.raises(Interrupted), Run.of_stage(stage, "n" * 64, "n" * 64, "d" * 64):
        raise Interrupted(signal.SIGTERM)
    assert [run.info.status for key in "kn" for run in runs_of(client, key * 64)] == [
        "KILLED",
        "KILLED",
    ]


@each_model
def test_a_silent_server_gives_one_warning_and_the_same_bytes(
    collected: Project,
    uninterrupted: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert collected.call("train") == 0
    said = capsys.readouterr().err.splitlines()
    (warned,) = (line for line in said if not line.startswith(collected.name("train")))
    assert re.match(
        r"warning: tracking: [\d,]+ metrics and 3 files of \S+ are not yet at http://127", warned
    )
    assert collected.hashes("models") == uninterrupted.hashes("models")


# Divergence.


@each_model
def test_a_diverging_training_saves_its_last_good_state(
    collected: Project,
    uninterrupted: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    collected.choose(overlay={"checkpoint_seconds": 3600})
    learning, stage = load(collected.model).train, collected.name("train")

    def diverging(*arguments: Any) -> Iterator[Progress]:
        for number, progress in enumerate(sound(*arguments), start=1):
            if number == 4:
                raise TrainingDiverged("the loss is not finite; lower the rate")
            yield progress

    sound = learning.train
    with monkeypatch.context() as patch:
        patch.setattr(learning, "train", diverging)
        assert collected.call("train") == 7
    assert last_line(capsys).startswith(
        f"{stage}: the loss is not finite; lower the rate; "
        f"last good checkpoint: step {collected.steps(3)}, in "
    )
    assert checkpoint(collected) == collected.steps(3)
    assert collected.statuses("train") == ["FAILED"]
    assert not (collected.root / "models").exists()
    assert collected.call("train") == 0
    assert collected.hashes("models") == uninterrupted.hashes("models")


def test_a_training_that_diverges_at_once_names_no_checkpoint(
    collected: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    collected.choose(
        overlay={"allo": {"train": {"lr_dual": 1e38, "dual_clip": None, "learning_rate": 10}}}
    )
    assert collected.call("train") == 7
    assert last_line(capsys).endswith("; no step before was good [exit 7]")
    assert not list((collected.root / ".state" / "train@allo").glob("*/*"))
