"""a passed gate -> branches with the result and its pictures, here and at the remotes; the same result once."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.commands import repro
from pipeline.judging.verdicts import Judged
from pipeline.retraining import body, worktree
from pipeline.retraining.body import Better, Origin
from pipeline.retraining.outcome import Told
from pipeline.retraining.worktree import Copy
from pipeline.runtime.errors import CommandFailed
from pipeline.storage import artifacts
from quatrain.registry import MODELS

PROPOSED = ("dvc.lock", "params.yaml", "reports", "baselines")
"""What a retraining may change in git."""
BRANCH, PICTURES = "retrain", "retrain-pictures"


class Target(NamedTuple):
    """Where a proposal goes: the git remote, or None for this repository alone; whether there is a DVC remote."""

    remote: str | None
    outs: bool
    pictures_url: str


def improved(judged: Sequence[Judged]) -> Better:
    """Models with a clearly better score; merely holding a baseline again and again must not wear it down."""
    moved = [
        one.model for one in judged if any(line.status == "better" for line in one.verdict.lines)
    ]
    return Better(tuple(moved), tuple(one.model for one in judged if one.model not in moved))


def changed(copy: Copy) -> bool:
    """Whether anything differs from the commit."""
    return copy.git("status", "--porcelain", "--", *PROPOSED) != ""


def propose(
    copy: Copy, target: Target, origin: Origin, judged: Sequence[Judged], better: Better
) -> tuple[str, Told]:
    """The branch with the result, and what to tell of it.

    Raises:
        CommandFailed: the better scores were refused, or a remote did not take what was pushed.
    """
    work = repro.workspace_of(copy.path, origin.preset)
    digest = digest_of(work, better)
    result, pictures = f"{BRANCH}/{digest}", f"{PICTURES}/{digest}"
    shown = body.pictures(work / "reports", pictures, target.pictures_url)
    told = body.proposal(origin, judged, better, metrics_diff(copy, origin.preset), shown)
    if worktree.commit_of(copy, target.remote, result):
        tell(f"this result is proposed already: branch {result}")
        return result, told
    report = worktree.commit_alone(copy, work, "reports", f"Report of {result}")
    promote(copy, origin.preset, better)
    message = f"{told.title}\n\nFrom {origin.told}.\n{better.told}"
    known = worktree.commit_of(copy, None, result) or worktree.commit(copy, PROPOSED, message)
    commits = {result: known, pictures: report}
    if target.remote is not None:
        push(copy, target, commits, outs=target.outs and origin.preset == "default")
    for branch, commit in commits.items():
        copy.git("branch", "--force", branch, commit)
    tell(
        f"proposed: branch {result}"
        + (f", pushed to {target.remote}" if target.remote else "; --push would send it")
    )
    return result, told


def digest_of(work: Path, better: Better) -> str:
    """Names a result; without the dates that a promotion writes, so that it is the same tomorrow."""
    files = ("params.yaml", "dvc.lock", *(f"reports/{model}/scores.json" for model in MODELS))
    content = {name: hashlib.sha256((work / name).read_bytes()).hexdigest() for name in files}
    return artifacts.digest_of({"files": content, "better": better.moved})[:12]


def metrics_diff(copy: Copy, preset: str) -> str:
    """What DVC says of all scores; nothing of a preset's, which git does not hold."""
    if preset != "default":
        return ""
    return copy.commands.read([*worktree.DVC, "metrics", "diff", "--md"], copy.path)


def promote(copy: Copy, preset: str, better: Better) -> None:
    """Let the better scores become baselines of the copy; the champion moves when they are merged.

    Raises:
        CommandFailed: they were refused.
    """
    if not better.moved:
        return
    if code := copy.python(
        "pipeline.commands.promote", "--preset", preset, "--keep-champion", *better.moved
    ):
        raise CommandFailed(
            "pipeline.commands.promote did not take the better scores; the lines above say why",
            code,
        )


def push(copy: Copy, target: Target, commits: Mapping[str, str], outs: bool) -> None:
    """First what the branches refer to, then the branches, all or none.

    Raises:
        CommandFailed: a remote did not take it.
    """
    if outs and copy.commands.call([*worktree.DVC, "push", "--quiet", "--run-cache"], copy.path):
        raise CommandFailed(
            "the DVC remote did not take the outs, so no branch was pushed; the lines above say why"
        )
    names = [f"{commit}:refs/heads/{branch}" for branch, commit in commits.items()]
    copy.git("push", "--quiet", "--atomic", "--force", str(target.remote), *names)


def tell(line: str) -> None:
    print(f"retrain: {line}", flush=True)
