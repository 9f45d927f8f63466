"""Sweeps whose machines or trials are odd: what ends them, and what is only a row."""

import json
from pathlib import Path

import pytest

from tests.pipeline import loopback
from tests.pipeline.scaling.loopback_cluster import LONG, SweepProject, cluster
from tests.pipeline.scaling.mlflow_of_sweep import recorded
from tests.pipeline.scaling.processes import soon

slow = pytest.mark.slow
full = pytest.mark.full

COLLECTED = {
    "search": "grid",
    "trials": 2,
    "space": {"collect.steps_per_env": {"of": [50, 70]}},
}
ODD = {
    "trials": 2,
    "seed": 1,
    "space": {
        "train.graph_coef": {"of": [0.5, 1e30]},
        "train.mode": {"of": ["stochastic", "exact"]},
        "train.encoder_rows": {"of": ["auto", "batch"]},
    },
}


@slow
def test_trials_collect_on_full_cpus_beside_a_head_without_any(tmp_path: Path) -> None:
    project = SweepProject.of(tmp_path / "checkout", COLLECTED)
    with cluster(project.root, 0, 2) as machines:
        ended = machines.sweep(project, str(tmp_path / "storage")).wait(600)
        assert machines.nodes[0].stages() == []
    assert ended.code == 0, ended.text
    assert [trial.state for trial in project.trials()] == ["finished"] * 3
    storage = tmp_path / "storage" / project.folder.name
    archives = [project.archive(trial.name, storage) for trial in project.trials()]
    manifests = [json.loads(files["models/allo/manifest.json"]) for files in archives]
    assert len({manifest["info"]["dataset"] for manifest in manifests}) == 3


@full
def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    project = SweepProject.of(tmp_path / "checkout")
    wrong = tmp_path / "token"
    wrong.touch(mode=0o600)
    wrong.write_text("0" * 64)
    with cluster(project.root, 0) as machines:
        ended = machines.sweep(
            project, str(tmp_path / "storage"), RAY_AUTH_TOKEN_PATH=str(wrong)
        ).wait(60)
    assert ended.code == 5
    warning, refusal = ended.text.splitlines()
    assert "fewer than 4 seeds" in warning
    assert "refuses the token" in refusal
    assert project.trials() == []


@full
def test_diverged_and_refused_trials_are_rows(tmp_path: Path) -> None:
    project = SweepProject.of(tmp_path / "checkout", ODD)
    ended = project.sweep("--cpus", "2").wait(300)
    assert ended.code == 0, ended.text
    assert [trial.state for trial in project.trials()] == ["finished", "refused", "diverged"]
    assert all(trial.reason for trial in project.trials()[1:])
    _, children = recorded(project.root)
    assert [run.info.status for run in children] == ["FINISHED", "FAILED"]


@slow
def test_a_hopeless_trial_is_stopped_and_its_run_killed(tmp_path: Path) -> None:
    schedule = {"kind": "asha", "first": 2000, "factor": 2}
    project = SweepProject.of(tmp_path / "checkout", {"schedule": schedule}, LONG)
    ended = project.sweep("--cpus", "1").wait(300)
    assert ended.code == 0, ended.text
    start, stopped = project.trials()
    assert (start.state, stopped.state) == ("finished", "stopped")
    assert stopped.score is None
    assert stopped.last is not None
    assert 2000 <= stopped.last.step < 20_000
    assert "models/allo/manifest.json" not in project.archive(stopped.name)
    parent, children = recorded(project.root)
    assert parent.info.status == "FINISHED"
    assert [run.info.status for run in children] == ["FINISHED", "KILLED"]


@slow
def test_code_that_changed_meanwhile_ends_the_sweep(tmp_path: Path) -> None:
    project = SweepProject.of(tmp_path / "checkout")
    driver = project.sweep("--cpus", "1")
    try:
        soon(
            lambda: (
                driver.process.poll() is not None
                or any("pipeline.train" in each.command for each in driver.left())
            ),
            150,
        )
        with (project.root / "pipeline" / "stages" / "report.py").open("a") as file:
            file.write("# another line\n")
        ended = driver.wait(300)
    finally:
        driver.end()
    assert ended.code == 3, ended.text
    assert "node 127.0.0.1 has other code" in ended.line
    assert [trial.state for trial in project.trials()] == ["finished", "running"]


@slow
def test_archives_in_s3(tmp_path: Path) -> None:
    project = SweepProject.of(tmp_path / "checkout")
    with loopback.s3(tmp_path / "moto.log") as url:
        loopback.put(f"{url}/{loopback.BUCKET}", b"")
        host = url.removeprefix("http://")
        uri = f"s3://{loopback.BUCKET}/sweeps?endpoint_override={host}&scheme=http"
        ended = project.sweep("--cpus", "2", "--storage", uri, **loopback.KEYS).wait(300)
    assert ended.code == 0, ended.text
    assert [trial.state for trial in project.trials()] == ["finished", "finished"]
    _, children = recorded(project.root)
    assert [run.info.status for run in children] == ["FINISHED", "FINISHED"]
