"""the outcome of a retraining -> one pull request for a result, one issue for what is broken, by
GitHub's `gh`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.retraining import outcome
from pipeline.runtime.command import Command, Options, Parser
from pipeline.runtime.errors import reason_in
from pipeline.runtime.redaction import shown
from quatrain.errors import QuatrainError


class GitHubError(QuatrainError):
    """Says which `gh` command failed."""

    exit_code = 5


def announce(folder: Path, base: str, link: str) -> str:
    """Opens, updates or closes pull request and issue; returns one line about what was done.

    folder: what a retraining leaves in .state/retrain. base: the branch to merge into. link: a page
    with its log.

    Raises:
        GitHubError: `gh` failed.
    """
    result = outcome.read(folder)
    text = folder / "announced.md"
    text.write_text(result.message.body + (f"\n{shown(link)}\n" if link else ""))
    if result.kind in ("broken", "stopped"):
        return open_issue(text)
    title = result.message.title
    branch = result.branch
    action = open_pull_request(branch, base, title, text) if branch else "nothing to propose"
    numbers = open_issues()
    for number in numbers:
        run_gh("issue", "close", number, "--comment", f"A later retraining passed: {title}")
    return action + "".join(f"; closed issue {number}" for number in numbers)


def open_pull_request(branch: str, base: str, title: str, text: Path) -> str:
    """Opens a pull request or updates an open one; one that a person has closed or merged is left
    alone.
    """
    existing = list_on_github("pr", "--head", branch, "--state", "all", "--json", "number,state")
    content = ["--title", title, "--body-file", str(text)]
    for request in existing:
        if request["state"] == "OPEN":
            run_gh("pr", "edit", str(request["number"]), *content)
            return f"pull request {request['number']} brought up to date"
    if existing:
        request = existing[0]
        state = str(request["state"]).lower()
        return f"pull request {request['number']} of {branch} is {state}: decided already"
    return f"opened {run_gh('pr', 'create', '--head', branch, '--base', base, *content)}"


def open_issue(text: Path) -> str:
    numbers = open_issues()
    if numbers:
        run_gh("issue", "edit", numbers[0], "--body-file", str(text))
        return f"issue {numbers[0]} brought up to date"
    return f"opened {run_gh('issue', 'create', '--title', outcome.ISSUE, '--body-file', str(text))}"


def open_issues() -> list[str]:
    issues = list_on_github("issue", "--state", "open", "--limit", "1000", "--json", "number,title")
    return [str(issue["number"]) for issue in issues if issue["title"] == outcome.ISSUE]


def list_on_github(kind: str, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(run_gh(kind, "list", *arguments))


def run_gh(*arguments: str) -> str:
    """Returns what a `gh` command prints.

    Raises:
        GitHubError: it failed, or `gh` is not installed.
    """
    try:
        result = subprocess.run(["gh", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise GitHubError(
            "there is no `gh`; install it (https://cli.github.com) and set GH_TOKEN"
        ) from None
    if result.returncode:
        reason = reason_in(result.stderr, result.returncode)
        raise GitHubError(f"`gh {' '.join(arguments[:2])}` failed: {reason}")
    return result.stdout.strip()


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "--folder", type=Path, default=outcome.FOLDER, help="the files that the retraining left"
    )
    parser.add_argument("--base", default="main", metavar="BRANCH", help="branch to merge into")
    parser.add_argument("--link", metavar="URL", help="a page with the log, put below the text")


def run(args: Options) -> None:
    args.folder.mkdir(parents=True, exist_ok=True)
    print(f"announce: {announce(args.folder, args.base, args.link)}")


main = Command(
    name="announce",
    summary="Reports the outcome of a retraining on GitHub as a pull request or an issue.",
    work=run,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
