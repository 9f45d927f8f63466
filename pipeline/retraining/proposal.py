"""a passed gate -> branches with the result and its figures, here and at the remotes; the same
result only once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.dvc.workspace import workspace_of
from pipeline.judging.verdicts import ModelVerdict
from pipeline.retraining import body, worktree
from pipeline.retraining.outcome import Message
from pipeline.retraining.worktree import Worktree
from pipeline.runtime.errors import CommandFailed
from pipeline.storage import artifacts
from quatrain.registry import MODELS

PROPOSED = ("dvc.lock", "params.yaml", "reports", "baselines")
BRANCH = "retrain"
FIGURES_BRANCH = "retrain-pictures"


class Target(NamedTuple):
    """Holds where a proposal is pushed to; `remote` is None for this repository alone."""

    remote: str | None
    has_dvc_remote: bool
    figures_url: str


def baseline_changes(results: Sequence[ModelVerdict]) -> body.BaselineChanges:
    """Returns which models have a clearly better score; equal scores must not wear their baselines
    down.
    """
    moved: list[str] = []
    unchanged: list[str] = []
    for result in results:
        is_better = any(line.status == "better" for line in result.verdict.lines)
        (moved if is_better else unchanged).append(result.model)
    return body.BaselineChanges(tuple(moved), tuple(unchanged))


def propose(
    copy: Worktree,
    target: Target,
    origin: body.Origin,
    results: Sequence[ModelVerdict],
    changes: body.BaselineChanges,
) -> tuple[str, Message]:
    """Commits the result to a branch, and pushes it if there is a remote; returns the branch and
    the message of its pull request.

    Raises:
        CommandFailed: the better scores were refused, or a remote refused what was pushed.
    """
    work = workspace_of(copy.path, origin.preset)
    digest = result_digest(work, changes)
    branch = f"{BRANCH}/{digest}"
    figures_branch = f"{FIGURES_BRANCH}/{digest}"
    figures = body.figures(work / "reports", figures_branch, target.figures_url)
    # The scores of a preset are not in git, so that DVC has no earlier ones.
    command = [*worktree.DVC, "metrics", "diff", "--md"]
    diff = copy.commands.read(command, copy.path) if origin.preset == "default" else ""
    message = body.proposal(origin, results, changes, diff, figures)
    if worktree.commit_of(copy, target.remote, branch):
        log(f"this result is proposed already: branch {branch}")
        return branch, message
    report = worktree.commit_without_parent(copy, work, "reports", f"Report of {branch}")
    promote(copy, origin.preset, changes)
    text = f"{message.title}\n\nFrom {origin.summary}.\n{changes.summary}"
    commits = {
        branch: worktree.commit_of(copy, None, branch) or worktree.commit(copy, PROPOSED, text),
        figures_branch: report,
    }
    destination = "; --push would send it"
    if target.remote is not None:
        push(copy, target, commits, with_outs=target.has_dvc_remote and origin.preset == "default")
        destination = f", pushed to {target.remote}"
    for name, commit in commits.items():
        copy.git("branch", "--force", name, commit)
    log(f"proposed: branch {branch}{destination}")
    return branch, message


def result_digest(work: Path, changes: body.BaselineChanges) -> str:
    """Returns the name of a result; without the dates of promotions, so that it is the same
    tomorrow.
    """
    names = ("params.yaml", "dvc.lock", *(f"reports/{model}/scores.json" for model in MODELS))
    return artifacts.digest_of(
        {
            "files": {
                name: hashlib.sha256((work / name).read_bytes()).hexdigest() for name in names
            },
            "better": changes.moved,
        }
    )[:12]


def promote(copy: Worktree, preset: str, changes: body.BaselineChanges) -> None:
    """Stores the better scores as baselines of the worktree; the alias `champion` moves when they
    are merged.

    Raises:
        CommandFailed: they were refused.
    """
    if not changes.moved:
        return
    options = ("--preset", preset, "--keep-champion", *changes.moved)
    code = copy.python("pipeline.commands.promote", *options)
    if code:
        raise CommandFailed(
            "pipeline.commands.promote did not take the better scores; the lines above say why",
            code,
        )


def push(copy: Worktree, target: Target, commits: Mapping[str, str], with_outs: bool) -> None:
    """Pushes first the outs that the branches refer to, then the branches, all or none.

    Raises:
        CommandFailed: a remote refused them.
    """
    command = [*worktree.DVC, "push", "--quiet", "--run-cache"]
    if with_outs and copy.commands.tell(command, copy.path):
        raise CommandFailed(
            "the DVC remote did not take the outs, so no branch was pushed; the lines above say why"
        )
    copy.git(
        "push",
        "--quiet",
        "--atomic",
        "--force",
        "--no-signed",
        str(target.remote),
        *(f"{commit}:refs/heads/{branch}" for branch, commit in commits.items()),
    )


def log(line: str) -> None:
    print(f"retrain: {line}", flush=True)
