"""the outcome of a retraining -> one pull request for a result, one issue for what is broken, by GitHub's `gh`."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.retraining import outcome
from pipeline.retraining.outcome import ISSUE
from pipeline.runtime.errors import PipelineError


class GitHubError(PipelineError):
    """Says which `gh` command failed."""

    exit_code = 5


def announce(folder: Path, base: str, link: str) -> str:
    """Tell GitHub; what was done, in one line.

    folder: what a retraining leaves in .state/retrain. base: the branch to merge into. link: a page with its log.

    Raises:
        GitHubError: `gh` failed.
    """
    ended = outcome.read(folder)
    text = folder / "announced.md"
    text.write_text(ended.told.body + (f"\n{link}\n" if link else ""))
    if ended.kind in ("broken", "stopped"):
        return open_issue(text)
    done = "nothing to propose"
    if ended.branch is not None:
        done = pull_request(ended.branch, base, ended.told.title, text)
    return done + close_issues(ended.told.title)


def pull_request(branch: str, base: str, title: str, text: Path) -> str:
    """Open it, or bring an open one up to date; one that a person has closed or merged is left as it is."""
    found = listed("pr", "--head", branch, "--state", "all", "--json", "number,state")
    still = [str(one["number"]) for one in found if one["state"] == "OPEN"]
    if still:
        gh("pr", "edit", still[0], "--title", title, "--body-file", str(text))
        return f"pull request {still[0]} brought up to date"
    if found:
        return f"pull request {found[0]['number']} of {branch} is {str(found[0]['state']).lower()}: decided already"
    return f"opened {gh('pr', 'create', '--head', branch, '--base', base, '--title', title, '--body-file', str(text))}"


def open_issue(text: Path) -> str:
    """Open the issue, or bring the open one up to date."""
    numbers = issues()
    if numbers:
        gh("issue", "edit", numbers[0], "--body-file", str(text))
        return f"issue {numbers[0]} brought up to date"
    return f"opened {gh('issue', 'create', '--title', ISSUE, '--body-file', str(text))}"


def close_issues(why: str) -> str:
    """What was broken is not any more."""
    numbers = issues()
    for number in numbers:
        gh("issue", "close", number, "--comment", f"A later retraining passed: {why}")
    return "".join(f"; closed issue {number}" for number in numbers)


def issues() -> list[str]:
    """Open issues of the one title."""
    found = listed("issue", "--state", "open", "--limit", "1000", "--json", "number,title")
    return [str(one["number"]) for one in found if one["title"] == ISSUE]


def listed(kind: str, *arguments: str) -> list[dict[str, Any]]:
    """What `gh KIND list` finds."""
    return json.loads(gh(kind, "list", *arguments))


def gh(*arguments: str) -> str:
    """What a `gh` command prints.

    Raises:
        GitHubError: it failed, or there is none.
    """
    try:
        done = subprocess.run(["gh", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise GitHubError(
            "there is no `gh`; install it (https://cli.github.com) and set GH_TOKEN"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise GitHubError(f"`gh {' '.join(arguments[:2])}` failed: {said[-1]}")
    return done.stdout.strip()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.commands.announce", description=__doc__
    )
    parser.add_argument(
        "--folder", type=Path, default=outcome.FOLDER, help="what the retraining left"
    )
    parser.add_argument("--base", default="main", metavar="BRANCH", help="to merge into (main)")
    parser.add_argument(
        "--link", default="", metavar="URL", help="a page with the log, put below the text"
    )
    chosen = parser.parse_args(argv)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    try:
        print(f"announce: {announce(chosen.folder, chosen.base, chosen.link)}")
    except GitHubError as error:
        print(f"announce: {error} [exit 5]", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
