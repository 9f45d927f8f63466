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
from tests.pipeline.fixture_types import Capture, Failure, Patch

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
        self.text = str(self.folder / "announced.md")
        self.has("pr")
        self.has("issue")

    def has(self, kind: str, *result: dict[str, object]) -> None:
        (self.state / kind).write_text(json.dumps(result))

    def hears(self, ended: Outcome | None) -> list[list[str]]:
        """What `gh` is asked besides lists."""
        (self.state / "calls").write_text("")
        if ended is not None:
            outcome.write(self.folder, ended)
        options = ["--base", "trunk", "--link", "https://me:word@example.org/log"]
        assert announce.main(["--folder", str(self.folder), *options]) == 0
        calls = [json.loads(line) for line in (self.state / "calls").read_text().splitlines()]
        return [call for call in calls if call[1] != "list"]


@pytest.fixture
def github(tmp_path: Path, monkeypatch: Patch) -> GitHub:
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(GH.format(python=sys.executable, state=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return GitHub(tmp_path)


def test_a_result_opens_a_pull_request_or_updates_an_open_one(github: GitHub, capsys: Capture):
    content = ["--title", "Retrain: iqn better", "--body-file", github.text]
    where = ["--head", "retrain/abc", "--base", "trunk"]
    assert github.hears(PROPOSED) == [["pr", "create", *where, *content]]
    assert Path(github.text).read_text() == "scores\n\nhttps://example.org/log\n"
    assert capsys.readouterr().out == "announce: opened https://example.org/1\n"
    github.has("pr", {"number": 3, "state": "CLOSED"}, {"number": 5, "state": "OPEN"})
    assert github.hears(PROPOSED) == [["pr", "edit", "5", *content]]
    capsys.readouterr()
    for state in ("CLOSED", "MERGED"):
        github.has("pr", {"number": 3, "state": state})
        assert github.hears(PROPOSED) == []
        said = f"pull request 3 of retrain/abc is {state.lower()}: decided already\n"
        assert capsys.readouterr().out == f"announce: {said}"


def test_what_is_broken_opens_one_issue_which_is_closed_later(github: GitHub, capsys: Capture):
    opened = ["issue", "create", "--title", ISSUE, "--body-file", github.text]
    assert github.hears(None) == [opened]
    why = "it was killed, interrupted or could not begin; its log says more"
    assert why in Path(github.text).read_text()
    assert github.hears(BROKEN) == [opened]
    assert Path(github.text).read_text().startswith("worse\n")
    github.has("issue", {"number": 4, "title": "something else"}, {"number": 7, "title": ISSUE})
    assert github.hears(BROKEN) == [["issue", "edit", "7", "--body-file", github.text]]
    capsys.readouterr()
    comment = "A later retraining passed: Retrain: nothing changed"
    assert github.hears(UNCHANGED) == [["issue", "close", "7", "--comment", comment]]
    assert capsys.readouterr().out == "announce: nothing to propose; closed issue 7\n"
    github.has("issue")
    assert github.hears(UNCHANGED) == []


def test_a_github_that_refuses_ends_with_5(github: GitHub, monkeypatch: Patch, failure: Failure):
    outcome.write(github.folder, PROPOSED)
    (github.state / "refused").write_text("HTTP 403: Resource not accessible by integration")
    why = "`gh pr list` failed: HTTP 403: Resource not accessible by integration"
    options = ("--folder", str(github.folder))
    assert failure(announce.main, *options, code=5) == f"announce: {why}"
    monkeypatch.setenv("PATH", str(github.folder))
    why = "there is no `gh`; install it (https://cli.github.com) and set GH_TOKEN"
    assert failure(announce.main, *options, code=5) == f"announce: {why}"


def test_it_needs_no_library(tmp_path: Path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pipeline.commands.announce"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, check=True)
