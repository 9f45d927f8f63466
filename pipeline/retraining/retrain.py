"""a commit -> run again, judged: a branch to merge if it passed and is new, a report if it is
broken.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.judging.gate import judge_run, rules_of
from pipeline.judging.scores import read_scores, with_info
from pipeline.retraining import outcome, webhook, worktree
from pipeline.retraining.outcome import FOLDER, Comparisons, Origin, Outcome, better_models
from pipeline.retraining.worktree import Worktree, run_git
from pipeline.runtime import console, processes
from pipeline.runtime.errors import (
    BaselineBroken,
    CommandFailed,
    Interrupted,
    LockHeld,
    described,
    exit_code_of,
)
from pipeline.storage.params_file import read_params, workspace_of, write_value
from quatrain.errors import QuatrainError
from quatrain.judgement import Judgement
from quatrain.params import Params
from quatrain.presets import parse
from quatrain.registry import MODELS
from quatrain.storage import folders

# How long the pipeline of a killed retraining may take to save and leave.
PATIENCE_SECONDS = 60.0
PROPOSED = ("dvc.lock", "params.yaml", "reports", "baselines")
AUTHOR = ("-c", "user.name=quatrain retraining", "-c", "user.email=retraining@localhost")


class Retraining(NamedTuple):
    """Holds what is asked for.

    seed: in place of params.yaml's. push: to the remotes. compare: seeds of a comparison with the
    champions, at most; 0: none.
    """

    preset: str
    seed: int | None = None
    jobs: int | None = None
    push: bool = False
    compare: int = 0


def retrain(root: Path, asked: Retraining) -> int:
    """Retrains the commit that is checked out, stores the outcome and returns its exit code.

    Raises:
        LockHeld: another retraining is running.
        ConfigError: files are not committed, or params, preset or options cannot be used.
        CommandFailed: a command that has to succeed failed.
        Interrupted: a signal was received; the next retraining continues from its checkpoints.
    """
    folder = root / FOLDER
    path = folder / "lock"
    lock = processes.lock_file(path, PATIENCE_SECONDS)
    if lock is None:
        place = f"process {path.read_text()}, or in what it has started"
        raise LockHeld(f"another retraining is at work in {place}; wait for it or end it")
    try:
        path.write_text(str(os.getpid()))
        outcome.clear(folder)
        result = retrain_alone(Worktree(root, folder.absolute() / "work", lock), asked)
    except Interrupted:
        raise
    except (QuatrainError, OSError) as error:
        tell_and_write(folder, outcome.stopped(described(error), exit_code_of(error) or 1))
        raise
    finally:
        os.close(lock)
    tell_and_write(folder, result)
    return result.exit


def tell_and_write(folder: Path, result: Outcome) -> None:
    """Tells the webhook of a failure, and stores the outcome."""
    if result.reason is not None:
        webhook.tell(f"{result.title}: {result.reason}")
    outcome.write(folder, result)


def retrain_alone(copy: Worktree, asked: Retraining) -> Outcome:
    """Runs pipeline and gate in a git worktree; the checkout is never modified, and may be edited
    meanwhile.
    """
    params = read_params(copy.root, asked.preset)
    for model in MODELS:  # `conclude` needs these modules, which are loaded when they are used
        rules_of(model, asked.preset, getattr(params, model))
    commit = worktree.clean_commit(copy.root)
    remote = worktree.push_remote(copy.root) if asked.push else None
    worktree.prepare(copy, commit, asked.preset)
    fetch_outs(copy)
    origin = choose_seed(copy.path, commit, asked)
    jobs = () if asked.jobs is None else ("--jobs", str(asked.jobs))
    code = copy.call("pipeline", "repro", "--preset", asked.preset, *jobs)
    if code not in (0, BaselineBroken.exit_code):
        raise CommandFailed("`make repro` stopped before the gate; the log says why", code)
    result = conclude(copy, remote, origin, asked.compare, passed=code == 0)
    worktree.remove(copy)
    return result


def fetch_outs(copy: Worktree) -> None:
    """Fetches outs and run cache from the DVC remote, if there is one, and checks the outs out.

    Outs in place are enough: DVC cannot restore a stage from the run cache of another machine if
    one of its outs is kept in git.
    """
    if copy.call("dvc", "fetch", "--quiet", "--run-cache"):
        log("no DVC remote gave everything; what the local cache lacks is computed")
    copy.call("dvc", "checkout", "--quiet", "--allow-missing")


def choose_seed(work: Path, commit: str, asked: Retraining) -> Origin:
    """Writes the requested seed into params.yaml, whose comments stay.

    Raises:
        ConfigError: params.yaml cannot be used, or has its seed in another form.
    """
    old = read_params(work).seed
    if asked.seed is not None:
        write_value(work / "params.yaml", "seed", asked.seed)
    seed = read_params(work, asked.preset).seed
    return Origin(commit, asked.preset, seed, is_new_seed=asked.seed not in (None, old))


def conclude(
    copy: Worktree, remote: str | None, origin: Origin, seeds: int, passed: bool
) -> Outcome:
    """Returns the outcome after the gate: a report of failure, nothing, or a proposal, with what up
    to so many `seeds` say of it.
    """
    work = workspace_of(copy.path, origin.preset)
    for name in outcome.REPORTS:
        shutil.copy(work / "reports" / name, copy.root / FOLDER / name)
    results = judge_results(copy.path, work, read_params(copy.path, origin.preset))
    if not passed:
        console.info(
            "retrain: the gate is broken and nothing was promoted; "
            f"{FOLDER / 'report.md'} shows the scores [exit {BaselineBroken.exit_code}]"
        )
        return outcome.broken(origin, results)
    comparisons = compare(copy, origin, seeds) if seeds else Comparisons()
    better = [
        model for model in better_models(results) if comparisons.verdicts.get(model) != "worse"
    ]
    is_new = better or copy.git("status", "--porcelain", "--", *PROPOSED)
    if not is_new or not (better or "better" in comparisons.verdicts.values()):
        log("passed, and no score is better; there is nothing to propose")
        return outcome.unchanged(origin)
    return propose(copy, remote, origin, results, better, comparisons)


def judge_results(root: Path, work: Path, params: Params) -> list[Judgement]:
    """Judges what the gate found fresh in `work`, a preset's folder of a worktree: the code of this
    process may have been edited since.
    """
    judgements = []
    for model in MODELS:
        scores = with_info(read_scores(work, model))
        judgements.append(judge_run(root, work, model, params, scores))
    return judgements


def compare(copy: Worktree, origin: Origin, seeds: int) -> Comparisons:
    """Compares code and params of each model with its champion's, over the same seeds, and keeps
    the pages; what is the champion's is not trained.
    """
    codes = {}
    for model in MODELS:
        asked = ("--against", "champion", "--name", outcome.COMPARISON.format(model=model))
        options = (*asked, "--seeds", str(seeds), "--preset", origin.preset)
        codes[model] = copy.call("pipeline", "compare", model, *options)
    pages = copy.path / "reports" / outcome.COMPARE
    if pages.exists():
        shutil.copytree(pages, copy.root / FOLDER / outcome.COMPARE)
    return outcome.read_comparisons(pages, codes)


def propose(
    copy: Worktree,
    remote: str | None,
    origin: Origin,
    results: Sequence[Judgement],
    better: Sequence[str],
    comparisons: Comparisons,
) -> Outcome:
    """Commits the result to a branch, and pushes it to the remote if there is one; the same result
    only once. Baselines of the models that are `better` move.

    Raises:
        CommandFailed: a remote refused what was pushed.
    """
    # Of params and scores, without the date of a promotion, so that it is the same tomorrow.
    lock = parse(workspace_of(copy.path, origin.preset) / "dvc.lock")
    branch = f"retrain/{folders.digest_of({'lock': lock, 'better': better})[:12]}"
    result = outcome.proposed(origin, results, better, branch, comparisons)
    if run_git(copy.root, "ls-remote", remote or ".", f"refs/heads/{branch}"):
        log(f"this result is proposed already: branch {branch}")
        return result
    if better:
        move_baselines(copy, origin.preset, better)
    copy.git("add", "--", *PROPOSED)
    message = f"{result.title}\n\nFrom {origin.summary}."
    options = ("--quiet", "--no-verify", "--no-gpg-sign", "--message", message)
    copy.git(*AUTHOR, "commit", *options)
    copy.git("branch", "--force", branch)  # it may be here, and not pushed yet
    if remote is None:
        log(f"proposed: branch {branch}; --push would send it")
        return result
    push(copy, remote, branch, with_outs=origin.preset == "default")
    log(f"proposed: branch {branch}, pushed to {remote}")
    return result


def move_baselines(copy: Worktree, preset: str, better: Sequence[str]) -> None:
    """Promotes in the worktree, and writes the report of the default preset, which is in git, by
    the new baselines. The alias `champion` moves when they are merged.

    Raises:
        CommandFailed: the scores are refused, or the report cannot be written.
    """
    # The table of scores is printed already; what is refused goes to stderr.
    if copy.call("pipeline", "promote", "--preset", preset, *better, stdout=subprocess.DEVNULL):
        raise CommandFailed("the better scores were not promoted; the lines above say why")
    if preset == "default" and copy.call("pipeline.dvc.brief", "repro", "--single-item", "report"):
        raise CommandFailed("the report was not written anew; the lines above say why")


def push(copy: Worktree, remote: str, branch: str, with_outs: bool) -> None:
    """Pushes first the outs that the branch refers to, then the branch.

    Raises:
        CommandFailed: a remote refused them.
    """
    has_remote = copy.call("dvc", "config", "--quiet", "core.remote") == 0
    if with_outs and has_remote and copy.call("dvc", "push", "--quiet", "--run-cache"):
        raise CommandFailed(
            "the DVC remote did not take the outs, so no branch was pushed; the lines above say why"
        )
    run_git(copy.root, "push", "--quiet", "--no-signed", remote, branch)


def log(line: str) -> None:
    print(f"retrain: {line}", flush=True)
