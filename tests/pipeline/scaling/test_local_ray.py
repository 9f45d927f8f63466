"""A sweep on this machine alone: as its stages by themselves, and nobody else can reach it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.storage.params_file import read_params
from tests.pipeline.recorded_runs import client_of
from tests.pipeline.scaling.loopback_cluster import (
    Ended,
    SweepCommand,
    SweepProject,
    environment,
    is_out,
)
from tests.pipeline.scaling.mlflow_of_sweep import recorded
from tests.pipeline.scaling.processes import Process, listening, soon
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import Project

pytestmark = pytest.mark.full

SLOW_START = {"allo": {"train": {"learning_rate": 1e-4}}}
BETTER = {"space": {"train.learning_rate": {"between": [8e-3, 1.2e-2], "scale": "log"}}}


class Swept(NamedTuple):
    """listeners: addresses while trials ran. left: processes after the end."""

    project: SweepProject
    ended: Ended
    listeners: set[tuple[str, int]]
    left: list[Process]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    root = tmp_path_factory.mktemp("local") / "checkout"
    project = SweepProject.of(root, BETTER, SLOW_START)
    command = project.sweep("--cpus", "2")
    try:
        soon(lambda: trains(command) or command.process.poll() is not None)
        listeners = listening(command.process.pid)
        command.process.wait(300)
        left = command.left()
    finally:
        command.end()
    return Swept(project, Ended(command.process.returncode, command.text), listeners, left)


def trains(command: SweepCommand) -> bool:
    return any("pipeline.train" in process.command for process in command.left())


def stages(project: Project, *verbs: str) -> dict[str, str]:
    """What the stages make by themselves in a folder."""
    for verb in verbs:
        done = subprocess.run(
            [sys.executable, "-m", f"pipeline.{verb}", "allo"],
            cwd=project.root,
            env=environment(project.root, MLFLOW_TRACKING_URI="http://127.0.0.1:1"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return {path: hashed for path, hashed in project.hashes().items() if is_out(path)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The start's params.yaml with its dataset."""
    project = Project.create(tmp_path_factory.mktemp("plain") / "folder", code=True)
    project.choose(SLOW_START | {"device": "cpu", "threads": 1})
    stages(project, "collect")
    return project


def test_it_ends_well_and_leaves_no_process(swept: Swept) -> None:
    assert swept.ended.code == 0, swept.ended.text
    assert [trial.state for trial in swept.project.trials()] == ["finished", "finished"]
    assert [trial.role for trial in swept.project.trials()] == ["start", "search"]
    assert swept.left == []


def test_only_this_machine_can_reach_its_processes(swept: Swept) -> None:
    assert swept.listeners
    assert {address for address, _ in swept.listeners} == {"127.0.0.1"}


def test_a_trial_is_its_stages_byte_for_byte(swept: Swept, plain: Project, tmp_path: Path) -> None:
    expected = stages(plain.copied(tmp_path / "copy"), "train", "evaluate")
    assert len(expected) > 1
    assert swept.project.outs("0000") == expected


def test_the_preset_is_the_best_trial(swept: Swept, plain: Project, tmp_path: Path) -> None:
    assert "presets/tiny.yaml" in swept.ended.text
    params = read_params(swept.project.root, "tiny")
    project = plain.copied(tmp_path / "copy")
    project.choose(params.model_dump(mode="json") | {"preset": "default"})
    assert swept.project.outs("0001") == stages(project, "train", "evaluate")


def test_nothing_is_registered_and_the_models_folder_stays_empty(swept: Swept) -> None:
    client = client_of(f"sqlite:///{swept.project.root}/.mlflow/mlflow.db")
    assert list(client.search_registered_models()) == []
    assert not (swept.project.root / "models").exists()


def test_mlflow_has_one_run_of_the_sweep_and_one_per_trial(swept: Swept) -> None:
    parent, children = recorded(swept.project.root)
    assert parent.info.status == "FINISHED"
    assert [run.info.status for run in children] == ["FINISHED", "FINISHED"]
    assert [run.data.tags["quatrain.trial"] for run in children] == ["0000", "0001"]
    head = git(swept.project.root, "rev-parse", "HEAD").strip()
    assert {run.data.tags["git.commit"] for run in (parent, *children)} == {head}


def test_a_finished_sweep_runs_nothing_again(swept: Swept) -> None:
    before = swept.project.results()
    again = swept.project.sweep("--cpus", "2").wait()
    assert again.code == 0, again.text
    assert "begins" not in again.text
    assert swept.project.results() == before
    recorded(swept.project.root)


def test_a_metric_that_is_not_recorded_ends_it(tmp_path: Path) -> None:
    changes = {"watch": "cosine_means", "schedule": {"kind": "asha", "first": 40, "factor": 3}}
    project = SweepProject.of(tmp_path / "checkout", changes)
    ended = project.sweep("--cpus", "1").wait()
    assert ended.code == 2, ended.text
    assert "watch" in ended.line
    assert "cosine_mean" in ended.line
    assert [trial.state for trial in project.trials() if trial.has_ended] == []


def test_gpus_that_this_machine_does_not_have_are_refused_and_not_waited_for(
    tmp_path: Path,
) -> None:
    project = SweepProject.of(tmp_path / "checkout", {"gpus": 64})
    ended = project.sweep("--cpus", "1").wait()
    assert ended.code == 5, ended.text
    assert "a trial needs 64 GPUs, and this machine offers fewer; set `gpus: 0`, or" in ended.line
