"""What a trial's key stands for, and that its bytes are those of the stages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.judging.scores import read_scores
from pipeline.trials import trial as trials
from pipeline.trials.engine import run_all
from pipeline.trials.local import Machine
from pipeline.trials.stages import Stage, stage_environment
from pipeline.trials.trial import (
    Trial,
    add_usage,
    check_current,
    dataset_folder,
    folder_of,
    link_dataset,
    make_trial,
    prepare,
    usage_of,
)
from quatrain.errors import DataError
from quatrain.presets import parse, read_raw
from quatrain.validation import overlaid
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_project import NOBODY, Project


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Trial]:
    project = Project.create(tmp_path)

    def of(files: dict[str, Path] | None = None, **changes: Any) -> Trial:
        raw = overlaid(read_raw(project.root), changes)
        return make_trial(project.root, "allo", raw, files)

    return of


def test_keys_stand_for_all_that_a_result_depends_on(
    make: Callable[..., Trial], tmp_path: Path, monkeypatch: Patch
):
    start = make()
    assert make() == start
    rate = make(allo={"train": {"learning_rate": 0.123}})
    assert (rate.key != start.key, rate.data_key) == (True, start.data_key)
    seed = make(seed=7)
    assert (seed.key != start.key, seed.data_key != start.data_key) == (True, True)
    for nothing in ({"checkpoint_seconds": 1}, {"preset": "other"}, {"iqn": {"seeds": 3}}):
        assert make(**nothing)[4:] == start[4:]
    (tmp_path / "inputs" / "allo").mkdir(parents=True, exist_ok=True)
    (tmp_path / "inputs" / "allo" / "new.txt").write_text("#")
    with pytest.raises(DataError, match="code or inputs of allo changed"):
        check_current(tmp_path, start)
    inputs = make()
    check_current(tmp_path, inputs)
    assert (inputs.key != start.key, inputs.data_key != start.data_key) == (True, True)
    edited = []
    for verb in (None, "collect", "train", "evaluate"):
        monkeypatch.setattr(trials, "code_digest", lambda *of, verb=verb: of[3] == verb)
        edited.append(make())
    assert len({each.key for each in edited}) == 4
    assert len({each.data_key for each in edited}) == 2


def test_a_folder_holds_the_params_files_and_dataset_of_its_trial(
    make: Callable[..., Trial], tmp_path: Path
):
    source = tmp_path / "elsewhere.txt"
    source.write_text("###\n#.#\n###\n")
    trial = make({"inputs/allo/room.txt": source})
    assert trial.key != make().key
    folder = folder_of(tmp_path, trial)
    prepare(trial, folder)
    assert parse(folder / "params.yaml") == trial.raw
    assert (folder / "inputs" / "allo" / "room.txt").read_bytes() == source.read_bytes()
    for name in ("gone", "here"):  # a link to a dataset that is gone is mended
        (tmp_path / "here" / "data" / "allo").mkdir(parents=True, exist_ok=True)
        link_dataset(trial, folder, tmp_path / name)
    assert (folder / "data" / "allo").resolve() == tmp_path / "here" / "data" / "allo"


def test_what_stages_used_adds_up(tmp_path: Path):
    for seconds, memory in ((1.5, 9), (2.0, 7)):
        add_usage(tmp_path, "train", seconds, memory)
    assert usage_of(tmp_path) == {"train": [3.5, 9]}


@pytest.mark.full
def test_a_trial_makes_the_bytes_of_the_stages(tmp_path: Path):
    project = Project.create(tmp_path / "project")
    project.choose({"device": "cpu", "threads": 1})
    environment = stage_environment(1) | {"QUATRAIN_TRIAL": "", "MLFLOW_TRACKING_URI": NOBODY}
    for verb in ("collect", "train", "evaluate"):
        stage = Stage(verb, "allo", project.root, environment)
        until(lambda stage=stage: not stage.is_running())
        assert stage.failure() is None
    trial = make_trial(project.root, "allo", parse(project.root / "params.yaml"))
    with Machine(project.root, watch="cosine_mean", cores=1) as machine:
        (outcome,) = run_all(project.root, [trial], ["the same"], machine)
    assert outcome.state == "finished", outcome
    of_trial = Project(folder_of(project.root, trial)).hashes("models")
    assert of_trial | Project(dataset_folder(project.root, trial)).hashes("data") == project.hashes(
        "data", "models"
    )
    assert outcome.scores == read_scores(project.root, "allo").scores
