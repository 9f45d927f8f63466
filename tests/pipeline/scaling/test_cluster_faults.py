"""A sweep that loses its driver or a node ends as if nothing had happened."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.outbox import Outbox
from tests.pipeline.scaling.loopback_cluster import (
    LONG,
    Node,
    SweepCommand,
    SweepProject,
    cluster,
)
from tests.pipeline.scaling.mlflow_of_sweep import recorded
from tests.pipeline.scaling.processes import kill, soon

slow = pytest.mark.slow

CONFIRMED = {"trials": 2, "confirm": {"top": 1, "seed": 1, "seeds": 1}}
LEAVE_SECONDS = 10.0
"""How long a sweep whose driver was killed may take to save and leave."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> SweepProject:
    """The reference: start, two trials, and two confirmations."""
    root = tmp_path_factory.mktemp("undisturbed") / "checkout"
    project = SweepProject.of(root, CONFIRMED, LONG)
    ended = project.sweep("--cpus", "2").wait(600)
    assert ended.code == 0, ended.text
    assert [trial.role for trial in project.trials()] == ["start", "search", "search"] + [
        "confirm"
    ] * 2
    return project


@pytest.fixture
def project(tmp_path: Path) -> SweepProject:
    """The same sweep, of the start and one trial."""
    return SweepProject.of(tmp_path / "checkout", {}, LONG)


def trials_with(processes: Any, verb: str) -> set[str]:
    """Names of the trials in whose folders a stage runs."""
    return {
        folder.parent.name
        for process in processes
        if f"pipeline.{verb}" in process.command and (folder := process.folder) is not None
    }


def archive(storage: Path, name: str) -> Path:
    return storage / f"{name}.tar"


@slow
def test_a_killed_driver_continues_to_the_same_result(
    undisturbed: SweepProject, tmp_path: Path
) -> None:
    project = SweepProject.of(tmp_path / "checkout", CONFIRMED, LONG)
    for moment in (in_training, in_confirmation):
        driver = project.sweep("--cpus", "2")
        try:
            soon(lambda driver=driver, moment=moment: moment(driver, project), 300)
            ended = {trial.number for trial in project.trials() if trial.has_ended}
            values = {trial.number: trial.values for trial in project.trials()}
            driver.process.kill()
            check_all_leave(driver)
        finally:
            driver.end()
    final = project.sweep("--cpus", "2").wait(600)
    assert final.code == 0, final.text
    assert not [number for number in ended if f"trial {number} begins" in final.text]
    assert values.items() <= {trial.number: trial.values for trial in project.trials()}.items()
    assert project.results() == undisturbed.results()
    for trial in project.trials():
        assert project.outs(trial.name) == undisturbed.outs(trial.name)
    check_record(project, 5)


def check_all_leave(driver: SweepCommand) -> None:
    for _ in range(round(LEAVE_SECONDS / 0.5)):
        time.sleep(0.5)
        left = driver.left()
        if not left:
            return
    raise AssertionError(f"{LEAVE_SECONDS:g} s after its driver there still is {left}")


def in_training(driver: SweepCommand, _: SweepProject) -> bool:
    assert driver.process.poll() is None, driver.text
    return len(trials_with(driver.left(), "train")) == 2


def in_confirmation(driver: SweepCommand, project: SweepProject) -> bool:
    assert driver.process.poll() is None, driver.text
    confirmed = {trial.name for trial in project.trials() if trial.role == "confirm"}
    return any(archive(project.storage, name).exists() for name in confirmed)


def check_record(project: SweepProject, trials: int) -> None:
    parent, children = recorded(project.root)
    assert parent.info.status == "FINISHED"
    assert [run.info.status for run in children] == ["FINISHED"] * trials


@slow
def test_a_driver_that_is_asked_to_end_stores_its_trials(
    undisturbed: SweepProject, project: SweepProject
) -> None:
    project.choose({"checkpoint_seconds": 600})
    driver = project.sweep("--cpus", "2")
    try:
        soon(lambda: in_training(driver, project), 300)
        soon(lambda: rows_of(driver), 150)
        driver.process.send_signal(signal.SIGTERM)
        assert driver.process.wait(60) == 143, driver.text
        assert [process for process in driver.left() if process.is_stage] == []
    finally:
        driver.end()
    assert driver.text.splitlines()[-1].endswith("[exit 143]")
    assert "Traceback" not in driver.text
    begun = [trial for trial in project.trials() if not trial.has_ended]
    assert len(begun) == 2
    for trial in begun:
        paths = project.archive(trial.name)
        assert any("/train@allo/" in path and path.endswith("manifest.json") for path in paths)
    parent, _ = recorded(project.root)
    assert parent.info.status == "KILLED"
    final = project.sweep("--cpus", "2").wait(600)
    assert final.code == 0, final.text
    assert project.results() == undisturbed.results()[:2]
    for name in ("0000", "0001"):
        assert project.outs(name) == undisturbed.outs(name)
        assert b"continues at step" in project.archive(name)["stages.log"]
    check_record(project, 2)


def rows_of(driver: SweepCommand) -> bool:
    """Whether every training has recorded something."""
    folders = [each.folder for each in driver.left() if "pipeline.train" in each.command]
    outboxes = [folder / ".state" / "outbox" for folder in folders if folder is not None]
    return len(outboxes) == 2 and all(
        any(Outbox(path).points() for path in outbox.glob("*.sqlite")) for outbox in outboxes
    )


@slow
@pytest.mark.parametrize("is_stored", [False, True], ids=["begun", "stored"])
def test_the_trial_of_a_lost_node_ends_on_another(
    undisturbed: SweepProject, project: SweepProject, tmp_path: Path, is_stored: bool
) -> None:
    with cluster(project.root, 1, 1) as machines:
        driver = machines.sweep(project, str(tmp_path / "storage"))
        try:
            storage = soon_storage(driver, project, tmp_path / "storage")
            lost = machines.nodes[1]
            name = soon_training(driver, lost, storage if is_stored else None)
            lost.kill()
            ended = driver.wait(600)
        finally:
            driver.end()
        assert ended.code == 0, ended.text
        assert f"trial {int(name)} lost its process or node, and starts again" in ended.text
        assert machines.nodes[0].stages() == []
    assert project.results() == undisturbed.results()[:2]
    for trial in ("0000", "0001"):
        assert project.outs(trial, storage) == undisturbed.outs(trial)
    continued = b"continues at step" in project.archive(name, storage)["stages.log"]
    assert continued == is_stored
    check_record(project, 2)


def soon_storage(driver: SweepCommand, project: SweepProject, folder: Path) -> Path:
    driver.says("begins")
    return folder / project.folder.name


def soon_training(driver: SweepCommand, node: Node, storage: Path | None) -> str:
    """Waits until a trial trains on the node, and is stored; returns its name."""
    names: set[str] = set()

    def is_so() -> bool:
        assert driver.process.poll() is None, driver.text
        names.clear()
        names.update(
            name
            for name in trials_with(node.stages(), "train")
            if storage is None or archive(storage, name).exists()
        )
        return bool(names)

    soon(is_so, 300)
    (name,) = names
    return name


@slow
def test_a_lost_worker_is_replaced(undisturbed: SweepProject, project: SweepProject) -> None:
    """As when the system runs out of memory: the stage of the killed process still saves, while the
    trial starts again on the same machine.
    """
    driver = project.sweep("--cpus", "1")
    try:
        storage = soon_storage(driver, project, project.root / ".state" / "sweeps") / "storage"
        soon(lambda: archive(storage, "0000").exists(), 300)
        (stage,) = [each for each in driver.left() if "pipeline.train" in each.command]
        kill(stage.parent)
        ended = driver.wait(600)
    finally:
        driver.end()
    assert ended.code == 0, ended.text
    assert "trial 0 lost its process or node, and starts again" in ended.text
    assert project.results() == undisturbed.results()[:2]
    for trial in ("0000", "0001"):
        assert project.outs(trial) == undisturbed.outs(trial)
    check_record(project, 2)
