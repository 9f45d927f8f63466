"""Workflows: least rights, no push, a schedule; and the same without GitHub.

zizmor (make check) holds that actions are pinned, that a checkout leaves no token behind, and that
no text of a stranger gets into a shell.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEDULE = ROOT / "docs" / "schedule"
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def workflow(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path)


@each
def test_nothing_is_permitted_but_what_a_job_names(path: Path):
    content = workflow(path)
    assert content["permissions"] == {}
    assert content["concurrency"]["cancel-in-progress"] is False
    for name, job in content["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 360, name


def test_only_the_job_that_pushes_may_write_and_only_the_one_that_tells_may_open():
    writing = {
        (path.stem, name): {
            right for right, level in job["permissions"].items() if level == "write"
        }
        for path in FILES
        for name, job in workflow(path)["jobs"].items()
    }
    assert {job: rights for job, rights in writing.items() if rights} == {
        ("retrain", "retrain"): {"contents"},
        ("retrain", "announce"): {"issues", "pull-requests"},
    }


@each
def test_no_command_pushes_and_every_action_is_githubs(path: Path):
    steps = [step for job in workflow(path)["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert commands
    assert [command for command in commands if "git push" in command] == []
    assert [action for action in actions if not action.startswith("actions/")] == []


def test_retraining_runs_on_a_schedule_and_by_hand():
    result = workflow(ROOT / ".github" / "workflows" / "retrain.yml")["on"]
    assert set(result) == {"schedule", "workflow_dispatch"}
    assert set(result["workflow_dispatch"]["inputs"]) == {"seed", "preset", "jobs"}


def test_speed_is_judged_on_the_schedule_by_a_job_that_stands_alone():
    job = workflow(ROOT / ".github" / "workflows" / "retrain.yml")["jobs"]["speed"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    (kept,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert commands == ["make setup", "make bench-gate"]
    assert (kept["if"], kept["with"]["path"]) == ("${{ !cancelled() }}", ".bench/gate")
    assert "needs" not in job


# The same without GitHub.


def test_the_timer_and_the_crontab_retrain_at_the_same_hour_with_what_was_pulled():
    timer, service, crontab = (
        (SCHEDULE / name).read_text()
        for name in ("quatrain-retrain.timer", "quatrain-retrain.service", "crontab")
    )
    assert "OnCalendar=Mon *-*-* 02:23:00" in timer
    assert "\n23 2 * * 1  cd " in crontab
    for text in (service, crontab):
        assert "git pull --quiet --ff-only" in text
        assert "make retrain ARGS=" in text
    assert "%" not in crontab  # which cron takes for the end of a line


@pytest.mark.parametrize("name", ["quatrain-retrain.timer", "quatrain-retrain.service"])
def test_systemd_understands_the_units(name: str, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in SCHEDULE.glob("quatrain-retrain.*"):
        shutil.copy(unit, tmp_path)
    command = ["systemd-analyze", "--man=no", "verify", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "quatrain-retrain" in line] == []
