"""GitHub hears of a result by one pull request, and of what is broken by one issue."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.commands import announce
from pipeline.retraining import outcome
from pipeline.retraining.outcome import ISSUE, Message, Outcome
from tests.conftest import ROOT

Capture = pytest.CaptureFixture[str]
GH = """#!{python} -S
import json, os, pathlib, sys
state = pathlib.Path({state!r})
arguments = sys.argv[1:]
with (state / "calls").open("a") as file:
    file.write(json.dumps(arguments) + "\\n")
if (state / "refused").exists():
    sys.exit((state / "refused").read_text())
if arguments[1] == "list":
    print((state / arguments[0]).read_text())
elif arguments[1] == "create":
    print("https://example.org/1")
"""
PROPOSED = Outcome("proposed", 0, Message("Retrain: iqn better", "scores\n"), "retrain/abc")
UNCHANGED = Outcome("unchanged", 0, Message("Retrain: nothing changed", "nothing\n"))
BROKEN = Outcome("broken", 4, Message(ISSUE, "worse\n"))


class GitHub:
    """A `gh` that knows some pull requests and issues, and notes what is asked of it."""

    def __init__(self, state: Path) -> None:
        self.state, self.folder = state, state / "retrain"
        self.has("pr")
        self.has("issue")

    def has(self, kind: str, *result: dict[str, object]) -> None:
        (self.state / kind).write_text(json.dumps(result))

    def hears(self, ended: Outcome | None) -> list[list[str]]:
        """What `gh` is asked besides lists."""
        if ended is not None:
            outcome.write(self.folder, ended)
        assert (
            announce.main(
                [
                    "--folder",
                    str(self.folder),
                    "--base",
                    "trunk",
                    "--link",
                    "https://example.org/log",
                ]
            )
            == 0
        )
        calls = [json.loads(line) for line in (self.state / "calls").read_text().splitlines()]
        return [call for call in calls if call[1] != "list"]

    @property
    def text(self) -> str:
        return str(self.folder / "announced.md")


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitHub:
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(GH.format(python=sys.executable, state=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return GitHub(tmp_path)


def test_a_result_opens_a_pull_request(github: GitHub, capsys: Capture):
    where = ["--head", "retrain/abc", "--base", "trunk"]
    assert github.hears(PROPOSED) == [
        ["pr", "create", *where, "--title", "Retrain: iqn better", "--body-file", github.text]
    ]
    assert Path(github.text).read_text() == "scores\n\nhttps://example.org/log\n"
    assert capsys.readouterr().out == "announce: opened https://example.org/1\n"


def test_an_open_pull_request_is_brought_up_to_date(github: GitHub):
    github.has("pr", {"number": 3, "state": "CLOSED"}, {"number": 5, "state": "OPEN"})
    assert github.hears(PROPOSED) == [
        ["pr", "edit", "5", "--title", "Retrain: iqn better", "--body-file", github.text]
    ]


@pytest.mark.parametrize("state", ["CLOSED", "MERGED"])
def test_what_a_person_has_decided_is_not_asked_again(github: GitHub, state: str, capsys: Capture):
    github.has("pr", {"number": 3, "state": state})
    assert github.hears(PROPOSED) == []
    printed = f"announce: pull request 3 of retrain/abc is {state.lower()}: decided already\n"
    assert capsys.readouterr().out == printed


def test_a_broken_gate_opens_one_issue_and_afterwards_updates_it(github: GitHub):
    assert github.hears(BROKEN) == [
        ["issue", "create", "--title", ISSUE, "--body-file", github.text]
    ]
    github.has("issue", {"number": 4, "title": "something else"}, {"number": 7, "title": ISSUE})
    assert github.hears(BROKEN)[1:] == [["issue", "edit", "7", "--body-file", github.text]]


def test_a_retraining_that_left_no_outcome_is_told_of_too(github: GitHub):
    assert github.hears(None) == [["issue", "create", "--title", ISSUE, "--body-file", github.text]]
    assert (
        "it was killed, interrupted or could not begin; its log says more"
        in Path(github.text).read_text()
    )


def test_when_it_passes_again_the_issue_is_closed(github: GitHub, capsys: Capture):
    github.has("issue", {"number": 7, "title": ISSUE})
    assert github.hears(UNCHANGED) == [
        ["issue", "close", "7", "--comment", "A later retraining passed: Retrain: nothing changed"]
    ]
    assert capsys.readouterr().out == "announce: nothing to propose; closed issue 7\n"


def test_where_nothing_changed_nothing_is_opened(github: GitHub):
    assert github.hears(UNCHANGED) == []


def test_a_github_that_refuses_is_an_error_of_the_environment(github: GitHub, capsys: Capture):
    outcome.write(github.folder, PROPOSED)
    (github.state / "refused").write_text("HTTP 403: Resource not accessible by integration")
    assert announce.main(["--folder", str(github.folder)]) == 5
    assert capsys.readouterr().err == (
        "announce: `gh pr list` failed: HTTP 403: Resource not accessible by integration [exit 5]\n"
    )


def test_without_gh_it_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome.write(tmp_path, BROKEN)
    assert announce.main(["--folder", str(tmp_path)]) == 5
    why = (
        "announce: there is no `gh`; install it (https://cli.github.com) and set GH_TOKEN "
        "[exit 5]\n"
    )
    assert capsys.readouterr().err == why


def test_it_needs_no_library(tmp_path: Path):
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pipeline.commands.announce",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path):
    for ended in (PROPOSED, UNCHANGED, BROKEN):
        outcome.write(tmp_path, ended)
        assert outcome.read(tmp_path) == ended
    outcome.clear(tmp_path)
    assert outcome.read(tmp_path).kind == "stopped"
