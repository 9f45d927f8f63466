"""A stage that cannot go on says so in one line, keeps what it has, and is continued to the same bytes."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pipeline import artifacts
from pipeline.checkpoints import Checkpoints
from pipeline.collect import collect
from pipeline.evaluate import evaluate
from pipeline.journal import Journal
from pipeline.params import read_params
from pipeline.run import Run
from pipeline.stage import Interrupted, Signals, Stage
from pipeline.train import train
from quatrain.registry import room
from tests.pipeline.recorded_runs import client_of, runs_of
from tests.pipeline.small_project import NOBODY, STEPS, Disk, Pretended, Project, flip_bit

BODIES: dict[str, Callable[[Stage, Signals], None]] = {"collect": collect, "train": train, "evaluate": evaluate}


@pytest.fixture(autouse=True, scope="module")
def surroundings() -> Iterator[None]:
    """No tracking server, one picture that is quickly drawn, and all modules loaded that a key may name."""
    for name in ("train", "evaluate"):
        room("allo", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", NOBODY)
        patch.setattr(room("allo", "plots"), "plots", lambda *_: {"ladder": Figure(figsize=(1, 1))})
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.made(tmp_path_factory.mktemp("uninterrupted") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.root)
        assert [project.call(verb, body) for verb, body in BODIES.items()] == [0, 0, 0]
    return project


@pytest.fixture
def project(uninterrupted: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With data, and nothing trained yet."""
    project = Project.made(tmp_path / "project")
    project.root.joinpath("data").mkdir()
    artifacts.save(project.root / "data" / "allo", *artifacts.load(uninterrupted.root / "data" / "allo")[:2])
    monkeypatch.chdir(project.root)
    return project


@pytest.fixture
def trained(uninterrupted: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With all that the three stages made."""
    project = uninterrupted.copied(tmp_path / "copy")
    monkeypatch.chdir(project.root)
    return project


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def checkpoint(project: Project) -> int:
    folder = max((project.root / ".state" / "train@allo").iterdir(), key=lambda kept: kept.stat().st_mtime)
    found = Checkpoints(folder).latest()
    assert found is not None
    return found.step


# Interruptions.


def test_training_interrupted_again_and_again_ends_with_the_same_bytes(
    project: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (80, 160, 240):
        assert project.call("train", train, Pretended(signal.SIGTERM, after=3)) == 143
        assert last_line(capsys) == "train@allo: interrupted by SIGTERM; the next run continues [exit 143]"
        assert checkpoint(project) == step
        assert project.statuses("train@allo") == ["KILLED"]
        assert not (project.root / "models").exists()
    assert project.call("train", train) == 0
    assert project.hashes("models") == uninterrupted.hashes("models")
    assert project.history_steps() == list(range(20, STEPS + 1, 20))
    assert project.statuses("train@allo") == ["FINISHED"]


def test_the_learner_is_saved_at_an_interruption_however_long_checkpoints_last(project: Project) -> None:
    project.choose(overlay={"checkpoint_seconds": 3600})
    assert project.call("train", train, Pretended(signal.SIGINT, after=2)) == 130
    assert checkpoint(project) == 60


def test_how_often_checkpoints_are_kept_changes_no_byte(project: Project, uninterrupted: Project) -> None:
    project.choose(overlay={"checkpoint_seconds": 3600})
    assert project.call("train", train) == 0
    assert project.hashes("models") == uninterrupted.hashes("models")


def test_a_training_that_is_done_is_not_repeated_where_only_dvc_does_not_know_it(
    project: Project, uninterrupted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.call("train", train) == 0
    for path in (project.root / "models" / "allo").iterdir():
        path.unlink()  # as DVC does before it runs a stage
    monkeypatch.setattr(room("allo", "train"), "run_chunk", lambda *_: pytest.fail("it trains again"))
    assert project.call("train", train) == 0
    assert project.hashes("models") == uninterrupted.hashes("models")


def test_a_learner_whose_curve_is_lost_is_trained_again(
    project: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.call("train", train, Pretended(signal.SIGTERM, after=4)) == 143
    (folder,) = project.journals("train@allo")
    (folder / "journal.jsonl").unlink()
    assert project.call("train", train) == 0
    assert "continues at" not in capsys.readouterr().err
    assert project.hashes("models") == uninterrupted.hashes("models")


def test_a_damaged_checkpoint_costs_the_work_since_the_one_before(
    project: Project, uninterrupted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.call("train", train, Pretended(signal.SIGTERM, after=4)) == 143
    for path in (project.root / ".state" / "train@allo").glob("*/*/learner.safetensors"):
        if '"step": 100' in path.with_name("manifest.json").read_text():
            flip_bit(path)
    assert project.call("train", train) == 0
    told = capsys.readouterr().err
    assert "train@allo: passed over a checkpoint: .state/train@allo/" in told
    assert "train@allo: continues at step 80 of 240" in told
    assert project.hashes("models") == uninterrupted.hashes("models")


def test_changed_params_start_afresh_and_end_the_run_that_was_killed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.call("train", train, Pretended(signal.SIGTERM, after=4)) == 143
    (killed,) = project.journals("train@allo")
    kept = (killed / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (killed / "journal.jsonl").write_bytes(b"".join(kept[:-1]))  # as kill -9 would have left it
    capsys.readouterr()
    project.choose(overlay={"allo": {"train": {"learning_rate": 0.02}}})
    assert project.call("train", train) == 0
    assert "continues at" not in capsys.readouterr().err
    assert checkpoint(project) == STEPS
    assert sorted(project.statuses("train@allo")) == ["FINISHED", "KILLED"]
    assert [line for _, line in Journal(killed).lines()][-1]["status"] == "KILLED"


def test_no_run_is_left_running_in_the_store(project: Project, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    stage = Stage("train", "allo", project.root, read_params(project.root))
    killed = Run.of(stage, "k" * 64, "k" * 64, "d" * 64)
    for shipper in killed.shippers:
        shipper.finish()  # locks go with their process; here they are given back
    killed.held.close()
    client = client_of(uri)
    assert [run.info.status for run in runs_of(client, "k" * 64)] == ["RUNNING"]
    with pytest.raises(Interrupted), Run.of(stage, "n" * 64, "n" * 64, "d" * 64):
        raise Interrupted(signal.SIGTERM)
    assert [run.info.status for key in "kn" for run in runs_of(client, key * 64)] == ["KILLED", "KILLED"]


# Data and learners that cannot be trusted.


@pytest.mark.parametrize("name", ["dataset.npz", "manifest.json"])
@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_flipped_bit_in_the_data_is_never_trained_on(
    project: Project, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_bit(project.root / "data" / "allo" / name)
    assert project.call(verb, BODIES[verb]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"{verb}@allo: data/allo/{name}: ")
    assert said.count("\n") == 1
    assert "`dvc checkout --force`" in said
    assert not (project.root / "models").exists()
    assert not (project.root / ".state").exists()


@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors", "history.csv", "config.json"])
def test_a_flipped_bit_in_a_learner_is_never_evaluated(
    trained: Project, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project, before = trained, trained.hashes("reports")
    flip_bit(project.root / "models" / "allo" / name)
    assert project.call("evaluate", evaluate) == 3
    assert capsys.readouterr().err.startswith(f"evaluate@allo: models/allo/{name}: ")
    assert project.hashes("reports") == before


def test_a_learner_of_another_config_is_not_evaluated(trained: Project, capsys: pytest.CaptureFixture[str]) -> None:
    trained.choose(overlay={"allo": {"network": {"hidden": 17}}})
    assert trained.call("evaluate", evaluate) == 3
    told = last_line(capsys)
    assert told.startswith("evaluate@allo: models/allo: not a learner of this config: ")
    assert told.endswith("; run `dvc repro train@allo` [exit 3]")


# Divergence.


def test_a_diverging_training_keeps_its_last_good_learner(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.choose(overlay={"checkpoint_seconds": 3600})
    learning = room("allo", "train")
    sound, calls = learning.run_chunk, iter(range(STEPS))

    def chunk(*arguments: Any) -> Any:
        learner, recorded = sound(*arguments)
        return learner, recorded | ({"graph": recorded["graph"] * float("nan")} if next(calls) == 3 else {})

    monkeypatch.setattr(learning, "run_chunk", chunk)
    assert project.call("train", train) == 7
    said = last_line(capsys)
    assert said.startswith("train@allo: allo step 61: graph term is not finite (b=")
    assert "; lower allo.train.learning_rate; last good checkpoint: step 60, in " in said
    assert checkpoint(project) == 60
    assert project.statuses("train@allo") == ["FAILED"]
    assert not (project.root / "models").exists()


def test_a_training_that_diverges_at_once_promises_no_checkpoint(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.choose(overlay={"allo": {"train": {"lr_dual": 1e38, "dual_clip": None, "learning_rate": 10}}})
    assert project.call("train", train) == 7
    assert last_line(capsys).endswith("; no step before was good [exit 7]")
    assert not list((project.root / ".state" / "train@allo").glob("*/*"))


# A disk that takes no more.


@pytest.mark.parametrize("verb", BODIES)
def test_a_full_disk_leaves_nothing_half_written_and_the_next_run_continues(
    uninterrupted: Project,
    trained: Project,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = {"collect": "data", "train": "models", "evaluate": "reports"}[verb]
    shutil.rmtree(trained.root / out)
    shutil.rmtree(trained.root / ".state")
    disk = Disk(monkeypatch, trained.root)
    assert trained.call(verb, BODIES[verb]) == 0
    writes = disk.taken
    for taken in (0, writes // 3, writes - 1):
        shutil.rmtree(trained.root / out, ignore_errors=True)
        shutil.rmtree(trained.root / ".state", ignore_errors=True)
        disk.takes(taken)
        assert trained.call(verb, BODIES[verb]) == 5
        said = last_line(capsys)
        assert said.startswith(f"{verb}@allo: cannot write {trained.root}/")
        assert said.endswith(": No space left on device; nothing half-written was left [exit 5]")
        assert not list(trained.root.joinpath(out).rglob("*.partial"))
        assert not list(trained.root.joinpath(out).rglob("verdict.json"))
        for manifest in trained.root.joinpath(out).rglob("manifest.json"):
            artifacts.load(manifest.parent)
    disk.takes(float("inf"))
    assert trained.call(verb, BODIES[verb]) == 0
    assert trained.hashes(out) == uninterrupted.hashes(out)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS, errno.EIO])
def test_other_refusals_of_a_disk_are_told_alike(
    project: Project, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Disk(monkeypatch, project.root, number).takes(0)
    assert project.call("collect", collect) == 5
    assert f": {os.strerror(number)}; nothing half-written was left [exit 5]" in last_line(capsys)
