"""A trial's stages in processes of their own: how they end, and what is read of them meanwhile."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.storage.run_key import CHECKOUT
from pipeline.tracking.outbox import Outbox
from pipeline.trials import stages
from pipeline.trials.stages import StageLost, Step, WatchedRows, Work
from pipeline.trials.trial import OUTCOME, Outcome, Point, read_outcome, usage_of
from quatrain.errors import ConfigError, DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header
from tests.pipeline.trials import stand_ins

ROWS = [Point(1, 1.0), Point(2, 0.5), Point(3, 1 / 3)]


def events_of(steps: Iterator[Step]) -> Iterator[Any]:
    for step in steps:
        if step is None:
            time.sleep(0.01)
        else:
            yield step


def run(root: Path, watch: str = "loss", **orders: str) -> tuple[list[Any], Any]:
    """Its rows, and its outcome."""
    folder = root / "trial"
    work = Work(stand_ins.trial(), stand_ins.environment(root, **orders))
    steps = work.train(folder, root / "dataset", WatchedRows(folder, "allo", watch))
    *rows, outcome = events_of(steps)
    return rows, outcome


def printed(folder: Path) -> str:
    path = folder / stages.LOG
    return path.read_text() if path.exists() else ""


def begun(folder: Path) -> list[str]:
    return [line.split()[0] for line in printed(folder).splitlines() if "at work" in line]


def test_training_then_evaluation_end_with_rows_and_scores_that_are_told_again(tmp_path: Path):
    rows, outcome = run(tmp_path)
    assert rows == ROWS
    assert (outcome.state, outcome.scores) == ("finished", {"cosine_mean": 0.5, "gap": None})
    assert set(outcome.cpu_seconds) == {"train", "evaluate"}
    assert outcome.peak_memory > 2**20
    assert run(tmp_path, train="1", evaluate="1") == (rows, outcome)
    assert begun(tmp_path / "trial") == ["train", "evaluate"]


def test_a_trial_continues_behind_what_it_has(tmp_path: Path):
    checkpoints = tmp_path / "trial" / ".state" / "train@allo"
    checkpoints.mkdir(parents=True)
    with pytest.raises(StageLost):
        run(tmp_path, evaluate="-9")
    assert checkpoints.exists()
    rows, outcome = run(tmp_path)
    assert (rows, outcome.state) == (ROWS, "finished")
    assert begun(tmp_path / "trial") == ["train", "evaluate", "evaluate"]
    assert not checkpoints.exists()


@pytest.mark.parametrize(
    ("code", "state"),
    [(1, "failed"), (2, "refused"), (3, "refused"), (6, "failed"), (7, "diverged")],
)
def test_what_would_happen_on_every_machine_is_an_outcome(code: int, state: str, tmp_path: Path):
    half = tmp_path / "trial" / "models" / "allo" / "half"
    checkpoints = tmp_path / "trial" / ".state" / "train@allo"
    for folder in (half, checkpoints):
        folder.mkdir(parents=True)
    _, outcome = run(tmp_path, train=str(code))
    assert checkpoints.exists(), "a reason may name the last good one"
    assert half.exists() == (code != 3), "its code may have been edited while it ran"
    assert (outcome.state, outcome.scores, outcome.reason) == (state, {}, "the reason")
    assert begun(tmp_path / "trial") == ["train"]
    assert read_outcome(tmp_path / "trial") == (outcome if state == "diverged" else None)


@pytest.mark.parametrize(("order", "code"), [("-9", 137), ("-15", 143), ("5", 5), ("130", 130)])
def test_what_another_machine_may_mend_is_lost(order: str, code: int, tmp_path: Path):
    with pytest.raises(StageLost, match=rf"^train@allo ended with {code}: "):
        run(tmp_path, train=order)
    assert read_outcome(tmp_path / "trial") is None


def test_no_stage_begins_with_other_code(tmp_path: Path):
    changed = Mock(side_effect=DataError("code changed"))
    work = Work(stand_ins.trial(), stand_ins.environment(tmp_path), check=changed)
    with pytest.raises(DataError, match="code changed"):
        list(work.collect(tmp_path))
    assert printed(tmp_path) == ""


@pytest.mark.parametrize("order", ["wait", "deaf"])
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "closed"])
def test_a_trial_that_is_stopped_lets_its_stage_save_and_kills_a_deaf_one(
    is_asked: bool, order: str, tmp_path: Path, monkeypatch: Patch
):
    folder = tmp_path / "trial"

    def is_ready() -> bool:
        return "ready" in printed(folder)

    if order == "deaf":
        monkeypatch.setattr(stages, "SAVE_SECONDS", 0.1)
    environment = stand_ins.environment(tmp_path, train=order)
    work = Work(stand_ins.trial(), environment, lambda: is_asked and is_ready())
    steps = work.train(folder, tmp_path, WatchedRows(folder, "allo", "loss"))
    if is_asked:
        assert [*events_of(steps)][-1][0] == "stopped"
        (again,) = work.train(folder, tmp_path, WatchedRows(folder, "allo", ""))
        assert isinstance(again, Outcome)
        assert again.state == "stopped"
    else:
        while not is_ready():
            next(steps)
        steps.close()
    assert printed(folder).endswith("ready\nsaved\n" if order == "wait" else "ready\n")
    assert begun(folder) == ["train"]
    assert read_outcome(folder) is None
    assert usage_of(folder)["train"][0] > 0


def test_a_watched_metric_that_is_never_recorded_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"^watch = 'los': training does not .* one of loss$"):
        run(tmp_path, watch="los")
    rows, outcome = run(tmp_path, watch="")
    assert (rows, outcome.state) == ([], "finished")


def test_a_stage_knows_nothing_of_ray_dvc_or_the_store(monkeypatch: Patch):
    for name in ("RAY_JOB_ID", "DVC_STAGE", "QUATRAIN_CRASH_AT", "RANK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HOME", "/home/someone")
    environment = stages.stage_environment(3)
    assert not [name for name in environment if name.startswith(("RAY_", "DVC_", "RANK"))]
    ours = {name: text for name, text in environment.items() if name.startswith("QUATRAIN_")}
    assert ours == {"QUATRAIN_TRIAL": "1", "QUATRAIN_PARENT": str(os.getpid())}
    assert (environment["HOME"], environment["NPROC"]) == ("/home/someone", "3")
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(CHECKOUT / "src"), str(CHECKOUT)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"colour": 1}'])
def test_a_damaged_outcome_is_none(text: str, tmp_path: Path):
    assert read_outcome(tmp_path) is None
    (tmp_path / OUTCOME).write_text(text)
    assert read_outcome(tmp_path) is None


# The outbox of the training.


def recorded(folder: Path, name: str, *points: tuple[str, int, float]) -> Outbox:
    outbox = Outbox(folder / ".state" / "outbox" / f"{name}.sqlite")
    outbox.begin(header("k1"))
    outbox.metrics(points)
    return outbox


def test_new_rows_of_the_watched_metric_are_read_once(tmp_path: Path):
    rows = WatchedRows(tmp_path, "allo", "loss")
    assert rows.read() == []
    others = [("train/loss/2", 11, 1.0), ("train/other", 12, 1.0), ("system/cpu", 90, 1.0)]
    outbox = recorded(tmp_path, "train@allo-1", ("train/loss", 10, 0.5), *others)
    assert [rows.read(), rows.read()] == [[Point(10, 0.5)], []]
    outbox.metrics([("train/loss", 30, float("nan")), ("train/loss", 40, 1.0)])
    assert rows.read() == [Point(40, 1.0)]
    # On another type of machine a training begins another outbox.
    os.utime(outbox.path, (1, 1))
    recorded(tmp_path, "evaluate@allo-1", ("train/loss", 2, 8.0))
    assert rows.read() == []
    recorded(tmp_path, "train@allo-2", ("train/loss", 20, 2.0))
    assert rows.read() == [Point(20, 2.0)]
