"""Workflows: least rights, no push, a schedule; and the same without GitHub.

zizmor (make check) holds that actions are pinned, that a checkout leaves no token behind, and that
no text of a stranger gets into a shell.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.retraining.outcome import ISSUE, OUTCOME
from tests.conftest import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
FILES = sorted(WORKFLOWS.glob("*.yml"))
SCHEDULE = ROOT / "docs" / "schedule"
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def workflow(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path)


@each
def test_nothing_is_permitted_but_what_a_job_names(path: Path):
    content = workflow(path)
    assert content["permissions"] == {}
    places = [content, *content["jobs"].values()]
    limits = [place["concurrency"] for place in places if "concurrency" in place]
    assert [limit["cancel-in-progress"] for limit in limits] == [False]
    for name, job in content["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 360, name


def test_only_the_job_that_pushes_may_write_and_only_the_one_that_tells_may_open():
    writing = {
        (path.stem, name, right)
        for path in FILES
        for name, job in workflow(path)["jobs"].items()
        for right, level in job["permissions"].items()
        if level == "write"
    }
    assert writing == {
        ("retrain", "retrain", "contents"),
        ("retrain", "announce", "issues"),
        ("retrain", "announce", "pull-requests"),
        ("compare", "tell", "pull-requests"),
        ("ci", "tell", "pull-requests"),
    }


def test_code_of_a_pull_request_meets_no_secret_and_no_right_to_write():
    contents = {path.stem: workflow(path) for path in FILES}
    asked = {name for name, content in contents.items() if "pull_request" in content["on"]}
    assert asked == {"ci", "compare", "image"}
    for content in map(contents.__getitem__, asked):
        assert "pull_request_target" not in content["on"]
        assert "secrets." not in json.dumps(content)
        for name, job in content["jobs"].items():
            if name == "tell":
                assert [step.get("uses") for step in job["steps"]] == [None]
            else:
                assert job["permissions"] == {"contents": "read"}


def test_a_job_with_secrets_or_a_right_to_write_restores_no_cache():
    """What a branch has put there would run with them."""
    assert "cache" not in json.dumps(workflow(WORKFLOWS / "retrain.yml"))


@each
def test_no_command_pushes_and_every_action_is_githubs(path: Path):
    steps = [step for job in workflow(path)["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert commands
    assert [command for command in commands if "git push" in command] == []
    assert [action for action in actions if not action.startswith("actions/")] == []


def test_every_locked_package_that_users_get_is_audited_by_a_pinned_tool():
    audit = workflow(WORKFLOWS / "ci.yml")["jobs"]["audit"]
    assert audit["permissions"] == {"contents": "read"}
    command = audit["steps"][-1]["run"]
    assert re.search(r"pipx install pip-audit==\d+\.\d+\.\d+\n", command)
    audited = {"torch", *re.search(r"for part in ([\w ]+);", command)[1].split()}
    setup = re.search(r"^SETUP := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert audited >= {*setup, "docs", "cluster"}
    assert all((ROOT / "requirements" / f"{name}.txt").is_file() for name in audited)


def test_retraining_and_the_whole_campaign_run_on_a_schedule():
    assert set(workflow(WORKFLOWS / "retrain.yml")["on"]) == {"schedule", "workflow_dispatch"}
    content = workflow(WORKFLOWS / "ci.yml")
    assert content["on"]["schedule"]
    assert "'schedule'" in content["jobs"]["campaign"]["if"]


def test_systemd_understands_the_units(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = [shutil.copy(unit, tmp_path) for unit in SCHEDULE.glob("quatrain-retrain.*")]
    command = ["systemd-analyze", "--man=no", "verify", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "quatrain-retrain" in line] == []


GH = """#!/bin/sh
echo "$@" >>"$HOME/calls"
case "$1 $2" in
"api --paginate") for last; do :; done; jq -r "$last" "$HOME/comments" ;;
"run download") test -d "$HOME/left" && cp -r "$HOME/left" "$7" ;;
*list) for last; do :; done; jq -r "$last" "$HOME/$1" ;;
esac
"""
LINK = "https://example.org/log"
PROPOSED = {"kind": "proposed", "title": "Retrain: iqn better", "branch": "retrain/abc"}
UNCHANGED = {"kind": "unchanged", "title": "Retrain: nothing changed", "branch": None}
BROKEN = {"kind": "broken", "title": ISSUE, "branch": None}
OTHER, OPEN_ISSUE = {"number": 3, "title": "other"}, {"number": 7, "title": ISSUE}
BODY = "--body-file outcome/body.md"
OPENED = f"pr create --head retrain/abc --base trunk --title {PROPOSED['title']} {BODY}"
UPDATED = f"pr edit retrain/abc --title {PROPOSED['title']} {BODY}"
CLOSED = "issue close 7 --comment A later retraining passed: "
ANNOUNCED: list[tuple[dict[str, Any] | None, list[str], list[dict[str, Any]], list[str]]] = [
    (PROPOSED, [], [], [OPENED]),
    (PROPOSED, ["CLOSED", "OPEN"], [OTHER], [UPDATED]),
    (PROPOSED, ["CLOSED"], [OPEN_ISSUE], [f"{CLOSED}{PROPOSED['title']}"]),
    (PROPOSED, ["MERGED"], [], []),
    (UNCHANGED, [], [OTHER, OPEN_ISSUE], [f"{CLOSED}{UNCHANGED['title']}"]),
    (BROKEN, [], [OTHER], [f"issue create --title {ISSUE} {BODY}"]),
    (BROKEN, [], [OTHER, OPEN_ISSUE], [f"issue edit 7 {BODY}"]),
    (None, [], [], [f"issue create --title {ISSUE} {BODY}"]),
]


def last_script(folder: Path, name: str, job: str, **values: str) -> tuple[int, list[str]]:
    """Runs the last script of a job where `left` is its artifact; returns its exit code and the
    calls of `gh`.
    """
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    steps = workflow(WORKFLOWS / f"{name}.yml")["jobs"][job]["steps"]
    script = [step["run"] for step in steps if "run" in step][-1]
    values |= {"HOME": str(folder), "PATH": f"{folder}:{os.environ['PATH']}", "RUN_ID": "1"}
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env={**values, "LINK": LINK}, check=False)
    return done.returncode, (folder / "calls").read_text().splitlines()


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(("outcome", "requests", "issues", "asked"), ANNOUNCED)
def test_a_result_has_one_pull_request_and_what_is_broken_one_issue(
    outcome: dict[str, Any] | None,
    requests: list[str],
    issues: list[dict[str, Any]],
    asked: list[str],
    tmp_path: Path,
):
    """None: the retraining was killed. A pull request that a person closed stays closed."""
    (tmp_path / "pr").write_text(json.dumps([{"state": state} for state in requests]))
    (tmp_path / "issue").write_text(json.dumps(issues))
    if outcome is not None:
        (tmp_path / "left").mkdir()
        (tmp_path / "left" / OUTCOME).write_text(json.dumps(outcome))
        (tmp_path / "left" / "body.md").write_text("scores\n")
    code, calls = last_script(tmp_path, "retrain", "announce", BASE="trunk")
    assert code == 0
    assert [call for call in calls if not re.match(r"run download|\w+ list ", call)] == asked
    body = (tmp_path / "outcome" / "body.md").read_text()
    assert body.startswith("scores\n" if outcome else "The retraining was killed")
    assert body.endswith(f"artifact: {LINK}\n")


MINE = {"login": "github-actions[bot]"}
MARK = {name: f"<!-- {name} -->" for name in ("ci", "compare")}
COMMENTS = [
    {"id": 1, "user": MINE, "body": "<!-- other -->"},
    {"id": 2, "user": {"login": "someone"}, "body": "<!-- ci -->"},
]
NEW = "pr comment 5 --body-file body.md"


def edit(number: int) -> str:
    place = f"repos/o/r/issues/comments/{number}"
    return f"api --silent --method PATCH {place} --field body=@body.md"


def comment_of(folder: Path, name: str, comments: list[dict[str, Any]], **values: str) -> list[str]:
    """Returns how the job `tell` of a workflow posts body.md among these comments."""
    (folder / "comments").write_text(json.dumps(comments))
    code, calls = last_script(
        folder, name, "tell", NUMBER="5", GH_REPO="o/r", MARK=MARK[name], **values
    )
    assert code == 0
    return calls[2:]


@pytest.mark.parametrize(
    ("left", "result", "said"),
    [
        ({"iqn": "# iqn: better\n", "allo": "# allo: worse\n"}, "success", []),
        ({}, "success", ["Nothing that trains a model has changed.\n"]),
        ({"iqn": "# iqn: better\n"}, "failure", ["Not every model was compared"]),
    ],
)
def test_a_pull_request_has_one_comment_with_what_every_comparison_says(
    left: dict[str, str], result: str, said: list[str], tmp_path: Path
):
    for model, text in left.items():
        (tmp_path / "left" / model).mkdir(parents=True)
        (tmp_path / "left" / model / "compare.md").write_text(text)
    assert comment_of(tmp_path, "compare", COMMENTS, RESULT=result) == [NEW]
    body = (tmp_path / "body.md").read_text()
    assert [text for text in (*left.values(), *said) if text not in body] == []
    assert body.endswith(f"artifact: {LINK}\n")


PAGE = """# Passed

| [allo](#allo): 3 of 3 hold<br>cosine 0.9<br>![allo](cards/allo.webp) |

All pictures: `report.html`, which `make repro` writes beside this page.

What changed since the baseline:

* seed: 0 -&gt; 1
"""
SHOWN = """# Passed

| [allo](#allo): 3 of 3 hold<br>cosine 0.9 |

Pictures: `report.html` and `cards` in the artifact `report` of the run.

What changed since the baseline:

* seed: 0 -&gt; 1
"""


def test_scores_and_changes_reach_summary_and_comment_and_pictures_are_said_to_be_elsewhere(
    tmp_path: Path,
):
    reports = tmp_path / ".presets" / "smoke" / "reports"
    reports.mkdir(parents=True)
    (reports / "report.md").write_text(PAGE)
    steps = workflow(WORKFLOWS / "ci.yml")["jobs"]["smoke"]["steps"]
    (script,) = [step["run"] for step in steps if "SUMMARY" in step.get("run", "")]
    values = os.environ | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=values, check=True)
    assert (tmp_path / "summary").read_text() == SHOWN
    shutil.copytree(reports, tmp_path / "left")
    older = {"id": 3, "user": MINE, "body": f"{MARK['ci']}\nold"}
    assert comment_of(tmp_path, "ci", [*COMMENTS, older]) == [edit(3)]
    body = (tmp_path / "body.md").read_text()
    assert body == f"{MARK['ci']}\n{SHOWN}\nLog and artifacts: {LINK}\n"


def test_a_pipeline_that_stopped_is_a_comment_too(tmp_path: Path):
    assert comment_of(tmp_path, "ci", COMMENTS) == [NEW]
    assert "stopped before its report" in (tmp_path / "body.md").read_text()
