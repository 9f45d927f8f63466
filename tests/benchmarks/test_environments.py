"""Environments of others: what is trained, once, and what the rows say."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.environments import learn, measure
from benchmarks.environments.tasks import PPO, Task, read
from benchmarks.rows import OURS, PEER, RANDOM
from quatrain.api.configs import make_params

POLE = Task("CartPole-v1", "gymnasium", {PPO: 2048}, {"n_envs": 8})


@pytest.mark.parametrize("task", read().values(), ids=read())
def test_presets_have_what_each_environment_is_learned_with(task: Task):
    for learner in task.transitions:
        changes = {"env": task.keys, "train": task.length(learner)}
        config = getattr(make_params(learner, task.preset, changes), learner)
        assert config.brings_env
        assert config.env.name


def test_each_side_is_trained_once_by_seed_until_its_task_changes(tmp_path: Path, monkeypatch):
    started = []

    def ended(command, **_):
        started.append(command[-3:])
        printed = {"return": 9.0, "cpu": 2.0} if command[-3] != RANDOM else {"return": 1.0}
        return subprocess.CompletedProcess(command, 0, f"a line\n{json.dumps(printed)}\n")

    monkeypatch.setattr(measure.subprocess, "run", ended)
    monkeypatch.setattr(measure, "read", lambda: {POLE.name: POLE})
    returns, seconds = measure.measure(tmp_path, 9)
    assert {side: list(times.values) for side, times in returns.sides.items()} == {
        OURS: [9.0] * 3,
        PEER: [9.0] * 3,
        RANDOM: [1.0] * 3,
    }
    assert seconds.sides.keys() == {OURS, PEER}
    assert len(started) == 9
    longer = POLE._replace(zoo={"n_envs": 4})
    monkeypatch.setattr(measure, "read", lambda: {POLE.name: longer})
    measure.measure(tmp_path, 9)
    assert {side for side, *_ in started[9:]} == {PEER}


def test_the_row_of_an_environment_that_is_refused_says_why(monkeypatch):
    task = POLE._replace(env={"id": "Pole-v1"}, zoo=None)
    monkeypatch.setattr(learn, "read", lambda: {task.name: task})
    kept = {measure.key_of(side, task, 0): learn.main(side, task.name, 0) for side in (PPO, RANDOM)}
    (row,) = measure.rows_of(task, kept)
    assert not row.sides
    assert row.note.startswith("ours: env Pole-v1 cannot be made")
