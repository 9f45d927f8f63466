"""a commit -> fetched, run again, judged: a branch to merge if it passed and is new, a report if it
is broken.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from pipeline.dvc.workspace import workspace_of
from pipeline.judging import verdicts
from pipeline.retraining import body, outcome, worktree
from pipeline.retraining.proposal import PROPOSED, Target, baseline_changes, log, propose
from pipeline.retraining.worktree import Worktree
from pipeline.runtime import console
from pipeline.runtime.errors import BaselineBroken, CommandFailed, described, exit_code_of
from pipeline.runtime.processes import PATIENCE_SECONDS, CommandSequence
from pipeline.storage.params_file import read_params, write_value
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS

REPORT = outcome.FOLDER / "report"


class Request(NamedTuple):
    preset: str
    seed: int | None
    jobs: int | None
    push: bool
    figures_url: str


def retrain(root: Path, request: Request, commands: CommandSequence) -> outcome.Outcome:
    """Runs in a git worktree; the checkout is never modified.

    Raises:
        ConfigError: files are not committed, or params, preset or options cannot be used.
        CommandFailed: a command that has to succeed failed.
        Interrupted: a signal was received; the next retraining continues in the same worktree.
    """
    commit = worktree.clean_commit(commands, root)
    read_params(root, request.preset)
    remote = fetch_branches(commands, root, request.push)
    copy = worktree.prepare(commands, root, commit)
    worktree.share_journals(root, workspace_of(copy.path, request.preset))
    target = Target(remote if request.push else None, fetch_outs(copy), request.figures_url)
    origin = choose_seed(copy, commit, request)
    jobs = () if request.jobs is None else ("--jobs", str(request.jobs))
    code = copy.python("pipeline.commands.repro", "--preset", request.preset, *jobs)
    if code not in (0, BaselineBroken.exit_code):
        raise CommandFailed(
            "pipeline.commands.repro stopped before the gate; the log says why", code
        )
    result = conclude(copy, target, origin, passed=code == 0)
    worktree.remove(commands, root, copy.path)
    return result


def fetch_branches(commands: CommandSequence, root: Path, is_needed: bool) -> str | None:
    """Fetches the remote's branches; returns its name, or None without a remote.

    Raises:
        ConfigError: there is no remote, and it is needed.
        CommandFailed: it does not answer, and it is needed.
    """
    remote = worktree.git_remote(commands, root)
    if remote is None:
        if is_needed:
            raise ConfigError("--push needs a git remote; `git remote add origin URL` names one")
        return None
    try:
        worktree.git(commands, root, "fetch", "--quiet", remote)
    except CommandFailed as error:
        if is_needed:
            raise
        log(f"goes on without {remote}: {error}")
    count = worktree.commits_behind(commands, root)
    if count:
        log(f"the upstream branch is ahead by {count}; `git pull` first to retrain that")
    return remote


def fetch_outs(copy: Worktree) -> bool:
    """Fetches outs and run cache from the DVC remote and checks the outs out; returns whether there
    is a remote.

    Outs in place are enough: DVC cannot restore a stage from the run cache of another machine if
    one of its outs is kept in git.
    """
    has_remote = worktree.has_dvc_remote(copy)
    command = [*worktree.DVC, "fetch", "--quiet", "--run-cache"]
    if not has_remote:
        log("no default DVC remote is set; what the local cache lacks is computed")
    elif copy.commands.tell(command, copy.path):
        log("the DVC remote did not give everything; what is missing is computed")
    copy.commands.succeeds([*worktree.DVC, "checkout", "--quiet", "--allow-missing"], copy.path)
    return has_remote


def choose_seed(copy: Worktree, commit: str, request: Request) -> body.Origin:
    """Writes the requested seed into params.yaml, whose comments stay.

    Raises:
        ConfigError: params.yaml cannot be used, or has another seed afterwards.
    """
    old = read_params(copy.path).seed
    if request.seed is not None:
        write_value(copy.path / "params.yaml", "seed", request.seed)
    seed = read_params(copy.path, request.preset).seed
    if request.seed not in (None, seed):
        raise ConfigError(f"params.yaml: seed is {seed} after {request.seed} was written; set it")
    return body.Origin(commit, request.preset, seed, is_new_seed=request.seed not in (None, old))


def conclude(copy: Worktree, target: Target, origin: body.Origin, passed: bool) -> outcome.Outcome:
    """Returns the outcome after the gate: a report of failure, nothing, or a proposal."""
    work = workspace_of(copy.path, origin.preset)
    results = [verdicts.check(work, model, origin.preset) for model in MODELS]
    report = copy.root / REPORT
    shutil.rmtree(report, ignore_errors=True)
    shutil.copytree(work / "reports", report)
    if not passed:
        return outcome.Outcome(
            kind="broken",
            code=BaselineBroken.exit_code,
            message=body.broken(origin, results, str(REPORT)),
        )
    changes = baseline_changes(results)
    if not changes.moved and not copy.git("status", "--porcelain", "--", *PROPOSED):
        return outcome.Outcome("unchanged", 0, body.unchanged(origin))
    branch, message = propose(copy, target, origin, results, changes)
    return outcome.Outcome("proposed", 0, message, branch)


def retrain_and_record(
    root: Path, request: Request, patience_seconds: float = PATIENCE_SECONDS
) -> int:
    """Retrains, stores the outcome and returns its exit code.

    Raises:
        ConfigError, CommandFailed, Interrupted: as `retrain`.
        LockHeld: another retraining is running.
    """
    folder = root / outcome.FOLDER
    with CommandSequence(folder / "lock", "retraining", patience_seconds) as commands:
        outcome.clear(folder)
        try:
            result = retrain(root, request, commands)
        except (CommandFailed, ConfigError, DataError, OSError) as error:
            outcome.write(folder, outcome.stopped(described(error), exit_code_of(error) or 1))
            raise
        outcome.write(folder, result)
    if result.kind == "unchanged":
        log("passed, and nothing changed; there is nothing to propose")
    if result.kind == "broken":
        console.info(
            "retrain: the gate is broken and nothing was promoted; "
            f"{REPORT / 'report.md'} shows the scores [exit {result.code}]"
        )
    return result.code
