"""Trials on this machine: their datasets, their retries, and two commands with one trial."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.runtime.errors import CommandFailed
from pipeline.trials import local, stages
from pipeline.trials.engine import run_all
from pipeline.trials.local import Machine, slots
from pipeline.trials.trial import Outcome, Trial, dataset_folder, folder_of, read_outcome
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.trials import stand_ins
from tests.pipeline.trials.stand_ins import trial

StandIns = Callable[..., None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: Patch) -> StandIns:
    """Makes stand-ins of all stages of this machine."""

    def tell(**orders: str) -> None:
        variables = stand_ins.environment(tmp_path, **orders)
        monkeypatch.setattr(local, "stage_environment", lambda *_: dict(variables))
        monkeypatch.setattr(local, "check_current", lambda *_: None)

    return tell


def run(root: Path, *trials: Trial, **options: int) -> list[Outcome]:
    with Machine(root, watch="loss", cores=2, **options) as machine:
        return run_all(root, trials, [each.key for each in trials], machine)


def events_of(machine: Machine) -> list[Any]:
    """What it tells until a trial ends."""
    events: list[Any] = []
    until(
        lambda: (
            events.extend(event for _, event in machine.events()) or Outcome in map(type, events)
        )
    )
    return events


def begin_waiting(machine: Machine, folder: Path) -> None:
    """Lets a stage begin that waits."""
    until(lambda: list(machine.events()) is not None and log(folder).endswith("ready\n"))


def log(folder: Path) -> str:
    path = folder / stages.LOG
    return path.read_text() if path.exists() else ""


def test_trials_share_a_dataset_that_is_collected_once(tmp_path: Path, stand_in: StandIns):
    stand_in()
    trials = [trial("a"), trial("b"), trial("c", "d2")]
    for each, outcome in zip(trials, run(tmp_path, *trials), strict=True):
        assert outcome.state == "finished"
        assert set(outcome.cpu_seconds) == {"collect", "train", "evaluate"}
        data = folder_of(tmp_path, each) / "data" / "allo"
        assert data.resolve() == dataset_folder(tmp_path, each) / "data" / "allo"
        assert log(dataset_folder(tmp_path, each)).count("at work") == 1


def test_a_trial_of_a_commit_runs_its_code(tmp_path: Path, stand_in: StandIns, monkeypatch: Patch):
    stand_in()
    variables = local.stage_environment(1) | {"PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(local, "stage_environment", lambda *_: variables)
    (outcome,) = run(tmp_path, trial()._replace(checkout=tmp_path / "code"))
    assert outcome.state == "finished"


def test_a_dataset_that_cannot_be_collected_is_the_outcome_of_all_its_trials(
    tmp_path: Path, stand_in: StandIns
):
    stand_in(collect="2")
    for outcome in run(tmp_path, *map(trial, "abc")):
        assert (outcome.state, outcome.reason) == ("refused", "the reason")
    assert log(dataset_folder(tmp_path, trial())).count("at work") == 1


def test_a_dataset_whose_collection_was_stopped_is_collected_for_another_trial(
    tmp_path: Path, stand_in: StandIns
):
    stand_in(collect="once:wait")
    with Machine(tmp_path, watch="loss") as machine:
        machine.begin(trial("a"))
        begin_waiting(machine, dataset_folder(tmp_path, trial("a")))
        machine.stop(trial("a"))
        assert [event.state for event in events_of(machine)] == ["stopped"]
        machine.begin(trial("b"))
        assert events_of(machine)[-1].state == "finished"


@pytest.mark.parametrize("verb", ["collect", "evaluate"])
def test_a_lost_stage_begins_again_and_each_row_is_told_once(
    verb: str, tmp_path: Path, stand_in: StandIns
):
    stand_in(**{verb: "once:-9"})
    with Machine(tmp_path, watch="loss", retries=1) as machine:
        machine.begin(trial())
        events = events_of(machine)
    assert events.pop().state == "finished"
    events.remove(f"{verb}@allo ended with 137: {verb} allo at work; it starts again")
    assert [step for step, _ in events] == [1, 2, 3]


def test_a_stage_that_is_lost_too_often_fails_and_the_next_command_tries_again(
    tmp_path: Path, stand_in: StandIns
):
    stand_in(train="-9")
    (outcome,) = run(tmp_path, trial(), retries=1)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("train@allo ended with 137")
    assert log(folder_of(tmp_path, trial())).count("at work") == 2
    stand_in()
    assert run(tmp_path, trial())[0].state == "finished"


def test_a_trial_of_another_command_is_waited_for_and_continued(tmp_path: Path, stand_in: StandIns):
    stand_in(train="once:wait")
    with Machine(tmp_path, watch="loss") as first, Machine(tmp_path, watch="loss") as second:
        first.begin(trial())
        begin_waiting(first, folder_of(tmp_path, trial()))
        second.begin(trial())
        assert list(second.events()) == []
        second.stop(trial())
        assert events_of(second) == [Outcome("stopped")]
        second.begin(trial())
        assert list(second.events()) == []
        first.stop(trial())
        assert events_of(first)[-1].state == "stopped"
        assert len(events_of(second)) == 4
    assert "ready\nsaved\ntrain allo at work" in log(folder_of(tmp_path, trial()))


def test_a_fault_of_this_machine_is_raised_and_other_trials_save(
    tmp_path: Path, stand_in: StandIns, monkeypatch: Patch
):
    stand_in(train="wait")
    with Machine(tmp_path, cores=2) as machine:
        machine.begin(trial("a"))
        begin_waiting(machine, folder_of(tmp_path, trial("a")))
        monkeypatch.setattr(stages, "prepare", Mock(side_effect=OSError("full")))
        machine.begin(trial("b", "d2"))
        with pytest.raises(OSError, match="full"):
            list(machine.events())
        assert list(machine.events()) == [(trial("b", "d2"), Outcome("stopped"))]
    assert log(folder_of(tmp_path, trial("a"))).endswith("saved\n")


@pytest.mark.parametrize("code", ["0", "3"])
def test_what_other_code_made_is_no_outcome(
    code: str, tmp_path: Path, stand_in: StandIns, monkeypatch: Patch
):
    def changed(*_: object) -> None:
        if "train" in log(folder_of(tmp_path, trial())):
            raise DataError("code changed")

    stand_in(train=code)
    monkeypatch.setattr(local, "check_current", changed)
    with pytest.raises(DataError, match="code changed"):
        run(tmp_path, trial())
    assert read_outcome(folder_of(tmp_path, trial())) is None
    assert not (folder_of(tmp_path, trial()) / "models" / "allo").exists()


@pytest.mark.parametrize(
    ("needs", "line"),
    [
        ({"cpus": 3}, "a trial needs 3 CPUs and 0 GPUs, and this machine offers 2 and 0; lower"),
        ({"gpus": 1}, "a trial needs 1 CPUs and 1 GPUs, and this machine offers 2 and 0; lower"),
    ],
)
def test_a_trial_that_does_not_fit_is_refused(needs: dict[str, int], line: str, tmp_path: Path):
    with pytest.raises(CommandFailed) as error:
        Machine(tmp_path, cores=2, **needs)
    assert str(error.value).startswith(line)


def test_slots_share_the_gpus(tmp_path: Path, monkeypatch: Patch):
    monkeypatch.setattr(local, "gpu_count", lambda: 2)
    assert Machine(tmp_path, gpus=0.4, cores=3).room() == 3
    assert slots(8, 0.5, 8) == ["0"]
    assert slots(3, 0, 8) == ["", ""]
    assert slots(1, 0.4, 8) == ["0", "1", "0", "1"]
    assert slots(1, 2, 8) == ["0,1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,9")  # of which one is not there
    assert slots(1, 1, 8) == ["3", "5"]
